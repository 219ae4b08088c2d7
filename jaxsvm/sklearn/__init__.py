"""scikit-learn estimators that choose all their hyperparameters by themselves (extra `sklearn`).

```python
from jaxsvm.sklearn import BayesianSVC

classifier = BayesianSVC().fit(x, y)
classifier.predict_proba(x_new), classifier.relevance_
```
"""

from ._files import described as described
from ._files import load as load
from ._files import rebuilt as rebuilt
from ._files import save as save
from ._gpc import MeanFieldGPC as MeanFieldGPC
from ._lssvc import LSSVC as LSSVC
from ._svc import BayesianSVC as BayesianSVC
from ._svr import BayesianSVR as BayesianSVR
