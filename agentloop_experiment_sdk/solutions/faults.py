"""The one exception that ends an HTTP exchange; it becomes a failed row, never the end of a run."""

from __future__ import annotations

TIMEOUT = "Timeout"
IDLE_TIMEOUT = "IdleTimeout"
CANCELLED = "Cancelled"
CONNECTION_ERROR = "ConnectionError"
TLS_ERROR = "TLSError"
PROXY_ERROR = "ProxyError"
PROTOCOL_ERROR = "ProtocolError"
INCOMPLETE_RESPONSE = "IncompleteResponse"
RESPONSE_TOO_LARGE = "ResponseTooLarge"
DECODING_ERROR = "DecodingError"
REDIRECT_ERROR = "RedirectError"
STATUS_ERROR = "HTTPStatusError"
STREAM_ERROR = "StreamError"
EXTRACTOR_ERROR = "ChunkExtractorError"


class ExchangeFault(Exception):
    """Why an exchange failed.

    Args:
        error_type: One of the names above; stored as ``error_type`` of the row.
        message: What happened, and what to do where that is known.
        retryable: True if the connection failed before the answer began, so that an idempotent
            request may be sent again.
    """

    def __init__(self, error_type: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.message = message
        self.retryable = retryable
