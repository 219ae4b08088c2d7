"""scikit-learn estimators that choose all their hyperparameters themselves (extra `sklearn`).

```python
from jaxsvm.sklearn import BayesianSVC

classifier = BayesianSVC().fit(x, y)
classifier.predict_proba(x_new), classifier.relevance_
```
"""

from ._classifiers import LSSVC as LSSVC
from ._classifiers import BayesianSVC as BayesianSVC
from ._classifiers import MeanFieldGPC as MeanFieldGPC
from ._regressor import BayesianSVR as BayesianSVR
from ._saving import described as described
from ._saving import load as load
from ._saving import rebuilt as rebuilt
from ._saving import save as save
