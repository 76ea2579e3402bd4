//! `Processor`: a scripted payment processor with an API like Stripe's.
//!
//! Responses are kept by idempotency key, as Stripe does: the same call again gets the first response, another call
//! under the key an error. Calls are recorded ([`Call`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::upstream::{Reply, Request, Upstream};

/// The credential of weir at the processor.
pub const SECRET_KEY: &str = "sk_test_0123456789abcdef";

/// The key of its webhook signatures.
pub const WEBHOOK_SECRET: &str = "whsec_0123456789abcdef";

/// A processor of payments on a socket of its own.
pub struct Processor {
    upstream: Upstream,
    books: Arc<Mutex<Books>>,
    folder: TempDir,
}

/// A call as it arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The fields of the form, or of the query.
    pub fields: BTreeMap<String, String>,
    /// The idempotency key.
    pub key: Option<String>,
}

/// Entries of a list in an object, and of a page without a limit.
const SHOWN: usize = 10;

/// A change of a response on its way.
type Fault = Box<dyn Fn(Reply) -> Reply + Send>;

#[derive(Default)]
struct Books {
    /// Calls and their responses, by idempotency key.
    kept: BTreeMap<String, (Call, u16, Value)>,
    /// Sessions by id.
    sessions: BTreeMap<String, Value>,
    /// Payments in order.
    intents: Vec<Value>,
    /// Invoices by id, with all their lines.
    invoices: BTreeMap<String, Value>,
    /// Items by subscription.
    items: BTreeMap<String, Vec<Value>>,
    customers: usize,
    default_method: Option<String>,
    card: Option<String>,
    declines: bool,
    faults: VecDeque<Fault>,
}

impl Processor {
    /// Starts a processor on a free port.
    pub async fn start() -> Self {
        let upstream = Upstream::start().await;
        let books = Arc::<Mutex<Books>>::default();
        let shared = books.clone();
        upstream.always_by(move |request| lock(&shared).answer(request));
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        for (name, secret) in [("key", SECRET_KEY), ("webhook", WEBHOOK_SECRET)] {
            std::fs::write(folder.path().join(name), secret).expect("the folder can be written");
        }
        Self {
            upstream,
            books,
            folder,
        }
    }

    /// The base URL of its API.
    pub fn base_url(&self) -> String {
        self.upstream.base_url()
    }

    /// The settings of a gateway that uses it, as TOML.
    pub fn settings(&self) -> String {
        let file = |name| self.folder.path().join(name);
        format!(
            "[payments]\nprocessor = \"stripe\"\napi_base = {:?}\nsecret_key = {{ file = {:?} }}\n\
             webhook_secrets = [{{ file = {:?} }}]\n",
            self.base_url(),
            file("key"),
            file("webhook"),
        )
    }

    /// Answers the next call with this reply, and changes nothing.
    pub fn will(&self, reply: Reply) -> &Self {
        self.upstream.will(reply);
        self
    }

    /// Performs the next call, and changes its response on the way.
    pub fn will_do_but(&self, fault: impl Fn(Reply) -> Reply + Send + 'static) -> &Self {
        self.books().faults.push_back(Box::new(fault));
        self
    }

    /// Declines all charges, or accepts them.
    pub fn declines(&self, declines: bool) {
        self.books().declines = declines;
    }

    /// Keeps the invoice or subscription of an event, and returns the event as Stripe sends it: lists show ten entries.
    ///
    /// <https://docs.stripe.com/api/pagination> has the default of ten entries. "When retrieving an invoice, you'll get a
    /// lines property containing the total count of line items and the first handful of those items": `listLineItems`
    /// in `InvoicesResource` of the `stripe` package 17.5.0 for Node.js.
    #[must_use]
    pub fn cut(&self, event: &Value) -> Value {
        let mut event = event.clone();
        let object = &mut event["data"]["object"];
        let id = object["id"].as_str().expect("an id").to_owned();
        let list = if object["object"] == "invoice" {
            &mut object["lines"]
        } else {
            &mut object["items"]
        };
        let entries = list["data"].as_array_mut().expect("a list");
        for (number, entry) in entries.iter_mut().enumerate() {
            entry["id"] = format!("entry_{id}_{number}").into();
        }
        let all = entries.clone();
        entries.truncate(SHOWN);
        list["has_more"] = (all.len() > SHOWN).into();
        let mut books = self.books();
        if object["object"] == "invoice" {
            let mut whole = object.clone();
            whole["lines"]["data"] = all.into();
            books.invoices.insert(id, whole);
        } else {
            books.items.insert(id, all);
        }
        event
    }

    /// Gives all customers a card, and sets their payment method for invoices.
    pub fn set_methods(&self, card: Option<&str>, chosen: Option<&str>) {
        let mut books = self.books();
        books.card = card.map(str::to_owned);
        books.default_method = chosen.map(str::to_owned);
    }

    /// Completes a payment page, or lets it expire: `complete`, or `expired`.
    pub fn end_session(&self, id: &str, status: &str) {
        let mut books = self.books();
        let session = books.sessions.get_mut(id).expect("a session");
        session["status"] = status.into();
    }

    /// Returns the payment pages that are open.
    pub fn open_sessions(&self) -> Vec<Value> {
        let books = self.books();
        let open = books.sessions.values();
        open.filter(|session| session["status"] == "open")
            .cloned()
            .collect()
    }

    /// Returns the number of payment pages.
    pub fn sessions(&self) -> usize {
        self.books().sessions.len()
    }

    /// Returns the number of customers.
    pub fn customers(&self) -> usize {
        self.books().customers
    }

    /// Returns the payments without the customer's presence, in order.
    pub fn intents(&self) -> Vec<Value> {
        self.books().intents.clone()
    }

    /// Returns all calls so far, after a check of the fields that every call must have.
    pub fn calls(&self) -> Vec<Call> {
        let requests = self.upstream.requests();
        requests
            .iter()
            .map(|request| {
                let authorization = format!("Bearer {SECRET_KEY}");
                assert_eq!(request.header("authorization"), Some(&*authorization));
                Call::of(request)
            })
            .collect()
    }

    /// Returns the API version of each call.
    pub fn versions(&self) -> Vec<String> {
        let requests = self.upstream.requests();
        let versions = requests
            .iter()
            .filter_map(|request| request.header("stripe-version"));
        versions.map(str::to_owned).collect()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.books)
    }
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Call {
    fn of(request: &Request) -> Self {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let form = match request.method.as_str() {
            "POST" => {
                let form = "application/x-www-form-urlencoded";
                assert_eq!(request.header("content-type"), Some(form));
                std::str::from_utf8(&request.body).expect("UTF-8")
            }
            _ => query,
        };
        let pairs = form.split('&').filter(|pair| !pair.is_empty());
        let fields: Vec<_> = pairs
            .map(|pair| {
                let (name, value) = pair.split_once('=').expect("a field");
                (decoded(name), decoded(value))
            })
            .collect();
        let count = fields.len();
        let fields = BTreeMap::from_iter(fields);
        assert_eq!(fields.len(), count, "a field is there twice: {form}");
        Self {
            method: request.method.clone(),
            path: path.to_owned(),
            fields,
            key: request.header("idempotency-key").map(str::to_owned),
        }
    }

    /// Returns the value of a field.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Returns its fields below a name: `metadata[a]` as `a`.
    fn below(&self, name: &str) -> Value {
        let fields = self.fields.iter().filter_map(|(field, value)| {
            let rest = field.strip_prefix(name)?.strip_prefix('[')?;
            Some((rest.strip_suffix(']')?.to_owned(), json!(value)))
        });
        fields.collect()
    }
}

/// Decodes a part of a form.
fn decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(&behind[..2]).expect("two digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("a number"));
            rest = &behind[2..];
        } else {
            bytes.push(first);
            rest = behind;
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}

impl Books {
    fn answer(&mut self, request: &Request) -> Reply {
        let call = Call::of(request);
        let known = call.key.as_ref().and_then(|key| self.kept.get(key));
        let (status, body) = match known {
            Some((first, status, body)) if *first == call => (*status, body.clone()),
            Some(_) => (400, error("idempotency_error", "", json!({}))),
            None => {
                let (status, body) = self.act(&call);
                if let Some(key) = &call.key {
                    let kept = (call.clone(), status, body.clone());
                    self.kept.insert(key.clone(), kept);
                }
                (status, body)
            }
        };
        let reply = Reply::json(status, &body);
        match self.faults.pop_front() {
            Some(fault) => fault(reply),
            None => reply,
        }
    }

    fn act(&mut self, call: &Call) -> (u16, Value) {
        let path: Vec<_> = call.path.split('/').skip(1).collect();
        match (call.method.as_str(), &path[..]) {
            ("POST", ["v1", "customers"]) => {
                self.customers += 1;
                let id = format!("cus_{}", self.customers);
                let customer =
                    json!({ "id": id, "object": "customer", "metadata": call.below("metadata") });
                (200, customer)
            }
            ("GET", ["v1", "customers", id]) => {
                let settings = json!({ "default_payment_method": self.default_method });
                (
                    200,
                    json!({ "id": id, "object": "customer", "invoice_settings": settings }),
                )
            }
            ("GET", ["v1", "payment_methods"]) => {
                let cards = self
                    .card
                    .iter()
                    .map(|id| json!({ "id": id, "type": "card" }));
                (200, list(cards.collect(), false))
            }
            ("POST", ["v1", "checkout", "sessions"]) => {
                let id = format!("cs_test_{}", self.sessions.len() + 1);
                let session = json!({
                    "id": id,
                    "object": "checkout.session",
                    "status": "open",
                    "url": format!("https://pay.example/{id}"),
                    "expires_at": call.field("expires_at").parse::<i64>().expect("seconds"),
                });
                self.sessions.insert(id, session.clone());
                (200, session)
            }
            ("GET", ["v1", "checkout", "sessions", id]) => match self.sessions.get(*id) {
                Some(session) => (200, session.clone()),
                None => missing(),
            },
            ("POST", ["v1", "checkout", "sessions", id, "expire"]) => {
                match self.sessions.get_mut(*id) {
                    Some(session) if session["status"] == "open" => {
                        session["status"] = "expired".into();
                        (200, session.clone())
                    }
                    _ => (400, error("invalid_request_error", "", json!({}))),
                }
            }
            ("POST", ["v1", "billing_portal", "sessions"]) => (
                200,
                json!({ "id": "bps_1", "url": "https://pay.example/portal" }),
            ),
            ("GET", ["v1", "invoices", id]) => match self.invoices.get(*id) {
                Some(invoice) => {
                    let mut invoice = invoice.clone();
                    let lines = invoice["lines"]["data"].as_array().expect("a list");
                    invoice["lines"] = page_of(lines, &Call::default());
                    (200, invoice)
                }
                None => missing(),
            },
            ("GET", ["v1", "invoices", id, "lines"]) => match self.invoices.get(*id) {
                Some(invoice) => {
                    let lines = invoice["lines"]["data"].as_array().expect("a list");
                    (200, page_of(lines, call))
                }
                None => missing(),
            },
            ("GET", ["v1", "subscription_items"]) => {
                match self.items.get(call.field("subscription")) {
                    Some(items) => (200, page_of(items, call)),
                    None => missing(),
                }
            }
            ("POST", ["v1", "payment_intents"]) => self.charge(call),
            ("GET", ["v1", "payment_intents"]) => {
                let after = call.fields.get("starting_after");
                let newest_first: Vec<_> = self.intents.iter().rev().cloned().collect();
                let from = newest_first
                    .iter()
                    .position(|intent| after.is_some_and(|after| intent["id"] == **after))
                    .map_or(0, |index| index + 1);
                let limit: usize = call.field("limit").parse().expect("a number");
                let page: Vec<_> = newest_first[from..].iter().take(limit).cloned().collect();
                let has_more = from + page.len() < newest_first.len();
                (200, list(page, has_more))
            }
            _ => (404, error("invalid_request_error", "", json!({}))),
        }
    }

    fn charge(&mut self, call: &Call) -> (u16, Value) {
        let mut intent = json!({
            "id": format!("pi_{}", self.intents.len() + 1),
            "object": "payment_intent",
            "status": "succeeded",
            "amount": call.field("amount").parse::<i64>().expect("cents"),
            "customer": call.field("customer"),
            "metadata": call.below("metadata"),
        });
        if self.declines {
            intent["status"] = "requires_payment_method".into();
            intent["last_payment_error"] =
                json!({ "code": "card_declined", "decline_code": "insufficient_funds" });
        }
        self.intents.push(intent.clone());
        match self.declines {
            true => {
                let more =
                    json!({ "decline_code": "insufficient_funds", "payment_intent": intent });
                (402, error("card_error", "card_declined", more))
            }
            false => (200, intent),
        }
    }
}

fn missing() -> (u16, Value) {
    let error = error("invalid_request_error", "resource_missing", json!({}));
    (404, error)
}

/// The page of a list that a call asks for: at most 100 entries (<https://docs.stripe.com/api/pagination>).
fn page_of(all: &[Value], call: &Call) -> Value {
    let limit = call.field("limit");
    let limit = if limit.is_empty() {
        SHOWN
    } else {
        limit.parse().expect("a number")
    };
    assert!((1..=100).contains(&limit), "{call:?}");
    let after = call.fields.get("starting_after");
    let is_last = |entry: &Value| after.is_some_and(|after| entry["id"] == **after);
    let from = all.iter().position(is_last).map_or(0, |index| index + 1);
    let page: Vec<_> = all[from..].iter().take(limit).cloned().collect();
    let has_more = from + page.len() < all.len();
    list(page, has_more)
}

fn list(data: Vec<Value>, has_more: bool) -> Value {
    json!({ "object": "list", "data": data, "has_more": has_more })
}

fn error(kind: &str, code: &str, mut more: Value) -> Value {
    more["type"] = kind.into();
    more["code"] = code.into();
    more["message"] = format!("No, not with {SECRET_KEY}.").into();
    json!({ "error": more })
}
