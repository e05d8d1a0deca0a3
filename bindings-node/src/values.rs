//! Conversions between bytes and JavaScript values. This module, `Port::ref_loop` and
//! `Port::unref_loop` are the only code that calls Node-API directly.
#![allow(unsafe_code)]

use bytes::Bytes;
use napi::bindgen_prelude::{BufferSlice, FromNapiValue, ToNapiValue, TypeName, ValidateNapiValue};
use napi::{Env, Result, ValueType, check_status, sys};

/// Bytes that are a string in JavaScript, with one character (code point 0 to 255) for each byte,
/// such as headers. The conversion is fast and changes no byte.
pub struct Latin1(pub(crate) Vec<u8>);

impl FromNapiValue for Latin1 {
    unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> Result<Self> {
        let mut length = 0;
        // SAFETY: the caller guarantees the values; without a buffer the call only measures.
        check_status!(unsafe {
            sys::napi_get_value_string_latin1(env, value, std::ptr::null_mut(), 0, &mut length)
        })?;
        // One byte more, for the terminator that the call writes.
        let mut bytes = vec![0u8; length + 1];
        // SAFETY: the buffer has the given length.
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
        // SAFETY: the caller guarantees the environment; the bytes are copied.
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

/// A whole response body. It becomes a JavaScript string if `is_text` and the bytes are UTF-8,
/// because most bodies are JSON, which JavaScript parses from a string. Otherwise it becomes a
/// buffer.
pub(crate) struct WholeBody {
    pub(crate) bytes: Bytes,
    pub(crate) is_text: bool,
}

impl ToNapiValue for WholeBody {
    unsafe fn to_napi_value(env: sys::napi_env, whole: Self) -> Result<sys::napi_value> {
        if whole.is_text {
            // SAFETY: the caller guarantees the environment, here and below.
            if whole.bytes.is_ascii() {
                return unsafe { Latin1::to_napi_value(env, Latin1(whole.bytes.into())) };
            }
            if let Ok(text) = std::str::from_utf8(&whole.bytes) {
                return unsafe { <&str>::to_napi_value(env, text) };
            }
        }
        unsafe { Buffer::to_napi_value(env, Buffer(whole.bytes)) }
    }
}

/// Bytes that are copied into a buffer of JavaScript's own memory. A byte stream in JavaScript
/// needs such a buffer, because it detaches the buffers that it gets.
pub(crate) struct Buffer(pub(crate) Bytes);

impl ToNapiValue for Buffer {
    unsafe fn to_napi_value(env: sys::napi_env, bytes: Self) -> Result<sys::napi_value> {
        let slice = BufferSlice::copy_from(&Env::from_raw(env), &bytes.0[..])?;
        // SAFETY: the caller guarantees the environment.
        unsafe { BufferSlice::to_napi_value(env, slice) }
    }
}
