"""LocalAgentLoop: an embedded AgentLoop and SLS on a loopback socket."""

from .embedded import Endpoints, LocalAgentLoop
from .exchange import Request, ServiceError
from .fault import Fault
from .faults import Faults

__all__ = ["Endpoints", "Fault", "Faults", "LocalAgentLoop", "Request", "ServiceError"]
