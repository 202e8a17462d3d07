"""How each family's registers and constants say an operation that lowering has described.

Invariant: layers describe operations once, in the registers of Ethos-U55; what another family says otherwise is here.
"""

from __future__ import annotations

from ...arch import Language
from ...weight_order import is_sparse
from . import u55, u85_weights
from .form import Form as Form
from .form import Streams as Streams
from .u85 import in_u85

FORMS = {
    Language.U55_U65: Form(u55.kernel, u55.fitted, u55.encode, u55.function_table, u55.never_sparse),
    Language.U85: Form(in_u85, u85_weights.fitted, u85_weights.encode, u85_weights.function_table, is_sparse),
}
