//! How bytes become JavaScript values, and back. The only place, beside the port's hold on its loop, that calls Node-API by hand.
#![allow(unsafe_code)]

use bytes::Bytes;
use napi::bindgen_prelude::{BufferSlice, FromNapiValue, ToNapiValue, TypeName, ValidateNapiValue};
use napi::{Env, Result, ValueType, check_status, sys};

/// A JavaScript string whose characters are bytes (code points up to 255), as headers are: quick to cross, and every byte survives.
pub struct Latin1(pub(crate) Vec<u8>);

impl FromNapiValue for Latin1 {
    unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> Result<Self> {
        let mut length = 0;
        // SAFETY: as our own caller promises; without a buffer the call only measures.
        check_status!(unsafe {
            sys::napi_get_value_string_latin1(env, value, std::ptr::null_mut(), 0, &mut length)
        })?;
        // One more for the terminator that the call writes.
        let mut bytes = vec![0u8; length + 1];
        // SAFETY: the buffer is as long as it is said to be.
        check_status!(unsafe {
            sys::napi_get_value_string_latin1(env, value, bytes.as_mut_ptr().cast(), bytes.len(), &mut length)
        })?;
        bytes.truncate(length);
        Ok(Self(bytes))
    }
}

impl ToNapiValue for Latin1 {
    unsafe fn to_napi_value(env: sys::napi_env, text: Self) -> Result<sys::napi_value> {
        let mut value = std::ptr::null_mut();
        let (start, length) = (text.0.as_ptr().cast(), text.0.len() as isize);
        // SAFETY: as our own caller promises; the bytes are copied.
        check_status!(unsafe { sys::napi_create_string_latin1(env, start, length, &mut value) })?;
        Ok(value)
    }
}

impl TypeName for Latin1 {
    fn type_name() -> &'static str {
        "String"
    }

    fn value_type() -> ValueType {
        ValueType::String
    }
}

impl ValidateNapiValue for Latin1 {}

/// A body that is all there. As text where it is text: most are JSON, which JavaScript reads from a string.
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    pub(crate) text: bool,
}

impl ToNapiValue for Whole {
    unsafe fn to_napi_value(env: sys::napi_env, whole: Self) -> Result<sys::napi_value> {
        if whole.text {
            // SAFETY: as our own caller promises, here and below.
            if whole.bytes.is_ascii() {
                return unsafe { Latin1::to_napi_value(env, Latin1(whole.bytes.into())) };
            }
            if let Ok(text) = std::str::from_utf8(&whole.bytes) {
                return unsafe { <&str>::to_napi_value(env, text) };
            }
        }
        unsafe { Chunk::to_napi_value(env, Chunk(whole.bytes)) }
    }
}

/// Bytes in memory of JavaScript's own, which a byte stream may detach.
pub(crate) struct Chunk(pub(crate) Bytes);

impl ToNapiValue for Chunk {
    unsafe fn to_napi_value(env: sys::napi_env, bytes: Self) -> Result<sys::napi_value> {
        let slice = BufferSlice::copy_from(&Env::from_raw(env), &bytes.0[..])?;
        // SAFETY: as our own caller promises.
        unsafe { BufferSlice::to_napi_value(env, slice) }
    }
}
