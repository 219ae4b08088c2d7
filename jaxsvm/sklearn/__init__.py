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
from ._estimator_files import described as described
from ._estimator_files import load as load
from ._estimator_files import rebuilt as rebuilt
from ._estimator_files import save as save
from ._regressor import BayesianSVR as BayesianSVR
