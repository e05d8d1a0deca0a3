"""Request bodies that are produced piece by piece: files, multipart forms, generators."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidegate._event_loop import run_native

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable

    from tidegate._native import Call, Upload

# Bytes. A body in memory tells the gate its model, and can be sent again; a larger one is not worth the memory.
_MAX_BUFFERED_BODY = 32 * 1024 * 1024


def fits_in_memory(request: Any) -> bool:
    """Whether a body's length is known, and moderate."""
    length = request.headers.get("content-length", "")
    return length.isdecimal() and int(length) <= _MAX_BUFFERED_BODY


async def feed(upload: Upload, chunks: AsyncIterable[bytes]) -> None:
    """Hand the chunks over as there is room, until the last, or until nobody reads them any more."""
    async for chunk in chunks:
        while (taken := upload.offer(chunk)) is False:
            await run_native(upload.room)
        if taken is None:
            return
    upload.finish()


async def await_response(future: asyncio.Future[Any], feeding: asyncio.Future[None]) -> Any:
    """Wait for the answer while the body is fed. A server may answer before it has read everything."""
    try:
        await asyncio.wait((future, feeding), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            # The body's own failure is the caller's to see.
            feeding.result()
        return await future
    except BaseException:
        feeding.cancel()
        raise


def send_upload(call: Call, upload: Upload, chunks: Iterable[bytes]) -> Any:
    """Feed the body from this thread, then wait for the answer."""
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
