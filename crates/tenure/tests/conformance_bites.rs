#![allow(missing_docs, reason = "a test")]
