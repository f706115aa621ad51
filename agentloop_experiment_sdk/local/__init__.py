"""LocalAgentLoop: an embedded AgentLoop and SLS on a loopback socket."""
