"""LocalAgentLoop: an embedded AgentLoop and SLS on a loopback socket."""

from .embedded import Endpoints, LocalAgentLoop
from .exchange import Request, ServiceError
from .faults import Fault, Faults

__all__ = ["Endpoints", "Fault", "Faults", "LocalAgentLoop", "Request", "ServiceError"]
