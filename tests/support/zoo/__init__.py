"""Programs of every kind the planner must serve, with inputs: shared by tests and benchmarks.

`ZOO` maps a name to a function that builds an `Entry`, or returns None when what it needs (a model file, an optional
package) is not there.
"""

from tests.support.zoo import models as models
from tests.support.zoo import programs as programs
from tests.support.zoo.entries import ZOO as ZOO
from tests.support.zoo.entries import Entry as Entry
