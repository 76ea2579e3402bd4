//! Identifiers that weir generates: a prefix that names the kind, then a UUIDv7 in hex.

use std::fmt;

use uuid::Uuid;

/// An id for one recorded exchange: later ones are greater.
pub fn recorded_exchange_id() -> String {
    prefixed("rec_")
}

/// An id for one request, e.g. `req_0192…`; in the `X-Request-Id` header, errors and the log.
pub fn request_id() -> String {
    prefixed("req_")
}

/// An id for one response; its dialect adds a prefix.
pub fn answer_id() -> String {
    prefixed("")
}

/// An id for one run of a swarm: only hexadecimal digits, later ones greater.
pub fn swarm_id() -> String {
    prefixed("")
}

/// An id for one task, later ones greater.
pub fn task_id() -> String {
    prefixed("task_")
}

/// An id for one start of a task, unlike any other start's.
pub fn start_id() -> String {
    prefixed("")
}

pub fn user_id() -> String {
    prefixed("usr_")
}

pub fn organisation_id() -> String {
    prefixed("org_")
}

/// An id for one group of an issuer's directory.
pub fn group_id() -> String {
    prefixed("grp_")
}

/// Returns whether an account's id is an organisation's.
pub fn is_organisation(account_id: &str) -> bool {
    account_id.starts_with("org_")
}

pub fn service_account_id() -> String {
    prefixed("svc_")
}

/// Returns whether a user's id is a service account's.
pub fn is_service_account(user_id: &str) -> bool {
    user_id.starts_with("svc_")
}

pub fn project_id() -> String {
    prefixed("prj_")
}

pub fn invitation_id() -> String {
    prefixed("inv_")
}

/// An id for one hold of credits without a request of weir's.
pub fn hold_id() -> String {
    prefixed("hold_")
}

/// Returns the id of a request's hold, which leads back to the request; `None` if the request's id is not weir's.
pub fn hold_of_request(request_id: &str) -> Option<String> {
    let digits = request_id.strip_prefix("req_")?;
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (digits.len() == 32 && digits.bytes().all(is_hex)).then(|| format!("hold_{digits}"))
}

/// An id for one run of a node.
pub fn boot_id() -> String {
    prefixed("boot_")
}

/// An id for an automatic charge that a user has authorized beforehand.
pub fn charge_id() -> String {
    prefixed("chg_")
}

/// An id for one voucher, later ones greater.
pub fn voucher_id() -> String {
    prefixed("vou_")
}

pub fn operator_action_id() -> String {
    prefixed("op_")
}

/// An id for one call to a payment processor.
pub fn payment_call_id() -> String {
    prefixed("pay_")
}

/// An id for one query to all nodes.
pub fn load_question_id() -> String {
    prefixed("ask_")
}

/// A unique number, never 0: the half of a UUIDv7 that is its variant and random bits.
pub fn unlike_any_other() -> u64 {
    Uuid::now_v7().as_u64_pair().1
}

fn prefixed(prefix: &str) -> String {
    let mut buffer = [0; 32];
    let hex = Uuid::now_v7().simple().encode_lower(&mut buffer);
    let mut id = String::with_capacity(prefix.len() + hex.len());
    id.push_str(prefix);
    id.push_str(hex);
    id
}

/// Bytes as lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // Chunks of 32 bytes: each call to the formatter takes as long as all of a digest's digits.
        for bytes in self.0.chunks(32) {
            let mut digits = [0; 64];
            for (byte, pair) in bytes.iter().zip(digits.chunks_exact_mut(2)) {
                pair[0] = DIGITS[usize::from(byte >> 4)];
                pair[1] = DIGITS[usize::from(byte & 15)];
            }
            let digits = str::from_utf8(&digits[..2 * bytes.len()]).map_err(|_| fmt::Error)?;
            formatter.write_str(digits)?;
        }
        Ok(())
    }
}
