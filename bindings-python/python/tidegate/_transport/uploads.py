"""Request bodies that are streamed: files, multipart forms, generators."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidegate._event_loop import run_native

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable

    from tidegate._native import Call, Upload

# Bytes. Smaller bodies are read into memory, so that the gate can read the model and retry the call.
_MAX_BUFFERED_BODY = 32 * 1024 * 1024


def fits_in_memory(request: Any) -> bool:
    """Returns `True` if the length of a body is known and small enough to read it into memory."""
    length = request.headers.get("content-length", "")
    return length.isdecimal() and int(length) <= _MAX_BUFFERED_BODY


async def feed(upload: Upload, chunks: AsyncIterable[bytes]) -> None:
    """Passes the chunks to the upload as it has room.

    Stops after the last chunk, or when nobody reads them.
    """
    async for chunk in chunks:
        while (taken := upload.offer(chunk)) is False:
            await run_native(upload.room)
        if taken is None:
            return
    upload.finish()


async def await_response(future: asyncio.Future[Any], feeding: asyncio.Future[None]) -> Any:
    """Waits for the response while the body is sent.

    The response may arrive before the whole body is sent.
    """
    try:
        await asyncio.wait((future, feeding), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            # Raises the failure of the body, if there is one.
            feeding.result()
        return await future
    except BaseException:
        feeding.cancel()
        raise


def send_upload(call: Call, upload: Upload, chunks: Iterable[bytes]) -> Any:
    """Sends the body from this thread, then waits for the response and returns it."""
    try:
        for chunk in chunks:
            if not call.feed(upload, chunk):
                break
        else:
            upload.finish()
        return call.result()
    except BaseException:
        call.cancel()
        raise
