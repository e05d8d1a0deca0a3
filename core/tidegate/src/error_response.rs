//! Conversion of an [`Error`] to an HTTP response that provider SDKs can parse.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response};

use crate::body::ResponseBody;
use crate::error::{Error, Reason};
use crate::explain::Obstacle;

impl Error {
    /// Converts the error to an HTTP response, for a caller that expects one.
    ///
    /// The JSON body has the shape that the SDKs of OpenAI and Anthropic read. The status is
    /// [`Error::status`]. The header `retry-after` contains whole seconds, rounded up; it is
    /// omitted if no time is known. The header `x-should-retry: false` keeps the SDK from retrying.
    ///
    /// ```
    /// use tidegate::Error;
    ///
    /// let response = Error::config("cap must be 1 or more").response();
    /// assert_eq!(response.status(), 400);
    /// assert_eq!(response.headers()["x-should-retry"], "false");
    /// ```
    pub fn response(&self) -> Response<ResponseBody> {
        let mut body = serde_json::json!({
            "type": "error",
            "error": {
                "message": self.to_string(),
                "type": format!("tidegate_{}", self.kind().as_str()),
                "param": null,
                "code": self.reason().map_or(self.kind().as_str(), Reason::as_str),
                "target": self.target(),
                "retry_after": self.retry_after().map(|after| after.as_secs_f64()),
                "queue_position": self.queue_position(),
            }
        });
        // Only for rejected calls: the rule that kept the call waiting, and the number of the call
        // in the log.
        if let Some(why) = self.why() {
            body["error"]["why"] = serde_json::json!(Obstacle::from(why));
        }
        if let Some(call) = self.call() {
            body["error"]["call"] = call.into();
        }
        let mut response = Response::new(ResponseBody::full(body.to_string()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
        if let Some(after) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs_f64().ceil() as u64));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;

    use super::*;
    use crate::error::ErrorKind;
    use crate::schedule::{Rule, WaitExplanation};

    #[tokio::test]
    async fn body_contains_the_rule_that_kept_the_call_waiting() {
        let why = WaitExplanation {
            rule: Rule::TenantCap,
            origin: None,
            since: Duration::from_millis(1500),
            waited: Duration::from_secs(3),
            ahead: 4,
            expected: None,
        };
        let error = Error::new(ErrorKind::Refused(Reason::WaitBudget), "too late");
        let response = error.with_why(Some(why)).with_call(17).response();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let expected = serde_json::json!({
            "rule": "tenant_cap", "text": Rule::TenantCap.sentence(), "since": 1.5, "waited": 3.0, "expected": null, "ahead": 4
        });
        assert_eq!((&body["error"]["why"], &body["error"]["call"]), (&expected, &17.into()));
    }

    #[tokio::test]
    async fn body_and_headers_contain_reason_target_and_retry_after() {
        let error = Error::new(ErrorKind::Refused(Reason::QueueFull), "the queue is full")
            .at(&"openai".into())
            .with_retry_after(Some(Duration::from_millis(1200)))
            .with_queue_position(7);
        let response = error.response();
        assert_eq!(response.status(), 429);
        assert_eq!(
            (&response.headers()["x-should-retry"], &response.headers()["retry-after"]),
            (&"false".parse().unwrap(), &"2".parse().unwrap())
        );
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], "queue_full");
        assert_eq!(body["error"]["message"], "openai: the queue is full");
        assert_eq!(
            (&body["error"]["queue_position"], &body["error"]["retry_after"]),
            (&7.into(), &1.2.into())
        );
    }
}
