//! Stripe's API: forms and JSON over HTTP.
//!
//! **Invariant:** each POST has an idempotency key. weir repeats it with the same key only, at most [`MAX_TRIES`] times
//! in all, and only if the result is unknown or Stripe did not begin: after a time-out, a broken connection, and the
//! statuses 409, 429 and 5xx, unless Stripe says otherwise (`Stripe-Should-Retry`).
//! **Invariant:** no error and no log contains the secret key, or Stripe's own text, which may quote the request.

use std::time::{Duration, Instant};

use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};
use url::form_urlencoded;
use weir_outgoing::{self as outgoing, Client};
use weir_storage::clock::Millis;
use weir_storage::ids;
use weir_storage::secrets::Secret;

use crate::events::EventType;
use crate::offers::{CURRENCY, ItemPrice, PurchaseItem};
use crate::settings::PaymentSettings;
use crate::terms::{
    CardCharge, CheckoutOrder, CheckoutSession, PaymentIntent, PaymentStatus, ProcessorError,
    SessionState,
};

/// The API version of weir's requests. The webhook endpoint must have the same version.
pub const API_VERSION: &str = "2024-12-18.acacia";

/// Maximum number of attempts of one request.
pub const MAX_TRIES: u32 = 3;

/// Maximum length of a response in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Maximum number of pages, of 100 entries each, that weir reads of a list.
const MAX_PAGES: u32 = 10;

/// The end of the URL of weir's webhook endpoint.
const WEBHOOK_PATH: &str = "/billing/webhook";

const VERSION: HeaderName = HeaderName::from_static("stripe-version");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const SHOULD_RETRY: &str = "stripe-should-retry";
const REQUEST_ID: &str = "request-id";

/// Stripe, or a service with the same API. Cheap to clone.
#[derive(Clone)]
pub struct Stripe {
    http: Client,
    base: String,
    /// The header with the secret key, marked as sensitive.
    authorization: HeaderValue,
    pace: StripeTimeouts,
}

/// Time limits and pauses.
#[derive(Debug, Clone, Copy)]
pub struct StripeTimeouts {
    /// Time limit of a connection.
    pub connect: Duration,
    /// Time limit of an attempt.
    pub each: Duration,
    /// Time limit of a request, with all attempts and pauses.
    pub all: Duration,
    /// Pause before the second attempt; the pause before the third is twice as long. Both get a random addition.
    pub pause: Duration,
    /// Maximum `Retry-After` that weir obeys; weir gives up on a longer one.
    pub longest_pause: Duration,
}

impl Default for StripeTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            each: Duration::from_secs(9),
            all: Duration::from_secs(20),
            pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(5),
        }
    }
}

/// Advice on the settings of the customer portal, for operators without `--probe`.
pub const PORTAL_ADVICE: &str = "if users change plans in the customer portal, set `proration_behavior` to `always_invoice`, so \
     that an upgrade is paid for at once, and `schedule_at_period_end` to `decreasing_item_amount`, so that a downgrade waits \
     for the next period; let users cancel `at_period_end`, because a cancellation at once with prorations returns money";

/// Settings of a portal configuration's `features` that do not fit: those that return money, and those of upgrades. The
/// names are those of API version 2024-12-18.acacia
/// (<https://docs.stripe.com/api/customer_portal/configurations/object>).
fn portal_problems(features: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let cancel = &features["subscription_cancel"];
    let behavior = &cancel["proration_behavior"];
    if cancel["enabled"] == true && cancel["mode"] == "immediately" && *behavior != "none" {
        problems.push(format!(
            "the customer portal cancels subscriptions at once and returns money for the rest of the period \
             (`proration_behavior` is {behavior}): set `mode` to `at_period_end`, or users lose the credits of that money"
        ));
    }
    let update = &features["subscription_update"];
    if update["enabled"] != true {
        return problems;
    }
    let updates = update["default_allowed_updates"].as_array();
    if updates.is_some_and(|updates| updates.iter().any(|update| update == "quantity")) {
        problems.push(
            "the customer portal lets users change quantities, which give no credits and return money when lowered: remove \
             `quantity` from `default_allowed_updates`"
                .to_owned(),
        );
    }
    let behavior = &update["proration_behavior"];
    if *behavior != "always_invoice" {
        problems.push(format!(
            "the customer portal's `proration_behavior` is {behavior}: set it to `always_invoice`, or upgrades give nothing \
             until the next invoice is paid"
        ));
    }
    let conditions = update["schedule_at_period_end"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    if !conditions.any(|condition| condition["type"] == "decreasing_item_amount") {
        problems.push(
            "the customer portal does not schedule downgrades: set `schedule_at_period_end` to `decreasing_item_amount`, or \
             users who downgrade keep the period's credits and get back a part of its price"
                .to_owned(),
        );
    }
    problems
}

/// Events that the webhook endpoint of weir does not get.
fn webhook_problems(endpoints: &[Value]) -> Option<String> {
    let mut endpoints = endpoints.iter().filter(|endpoint| {
        let url = endpoint["url"].as_str().unwrap_or_default();
        endpoint["status"] != "disabled" && url.ends_with(WEBHOOK_PATH)
    });
    let Some(endpoint) = endpoints.next() else {
        return Some(format!(
            "no enabled webhook endpoint has a URL that ends in {WEBHOOK_PATH}"
        ));
    };
    let events = endpoint["enabled_events"].as_array();
    let is_enabled = |name: &str| {
        let mut events = events.into_iter().flatten();
        events.any(|event| event == name || event == "*")
    };
    let missing = EventType::ALL.iter().map(|kind| kind.name());
    let missing: Vec<_> = missing.filter(|name| !is_enabled(name)).collect();
    let url = &endpoint["url"];
    (!missing.is_empty()).then(|| {
        let missing = missing.join(", ");
        format!("the webhook endpoint {url} does not get these events: {missing}")
    })
}

/// The fields of a form, in their order.
#[derive(Clone)]
struct Form(Vec<(String, String)>);

enum StripeAttempt {
    Done(Value),
    Failed(ProcessorError),
    Again(ProcessorError, Option<Duration>),
}

impl Stripe {
    /// Builds a client for an API base, for example `https://api.stripe.com`.
    ///
    /// # Errors
    ///
    /// The key has characters that no header can have, or TLS cannot be set up. The error contains nothing of the key.
    pub fn new(api_base: &str, key: &Secret, pace: StripeTimeouts) -> anyhow::Result<Self> {
        let authorization = HeaderValue::try_from(format!("Bearer {}", key.expose()));
        let mut authorization = authorization
            .map_err(|_| anyhow::anyhow!("secret_key: it has characters that no key has"))?;
        authorization.set_sensitive(true);
        Ok(Self {
            http: outgoing::client(pace.connect)?,
            base: api_base.trim_end_matches('/').to_owned(),
            authorization,
            pace,
        })
    }

    pub async fn create_customer(
        &self,
        user_id: &str,
        key: &str,
    ) -> Result<String, ProcessorError> {
        let mut form = Form::new();
        form.add("metadata[user_id]", user_id);
        let customer = self.post("/v1/customers", form, key).await?;
        text(&customer, "id")
    }

    pub async fn create_checkout(
        &self,
        order: &CheckoutOrder<'_>,
        key: &str,
    ) -> Result<CheckoutSession, ProcessorError> {
        let form = checkout_form(order);
        let session = self.post("/v1/checkout/sessions", form, key).await?;
        let expires_at = session["expires_at"].as_i64();
        Ok(CheckoutSession {
            id: text(&session, "id")?,
            url: text(&session, "url")?,
            expires_at: expires_at.map_or(order.expires_at, |seconds| {
                Millis(seconds.saturating_mul(1_000))
            }),
        })
    }

    pub async fn checkout_state(&self, session_id: &str) -> Result<SessionState, ProcessorError> {
        let path = format!("/v1/checkout/sessions/{}", segment(session_id)?);
        session_state(&self.get(&path, Form::new()).await?)
    }

    /// Expires a checkout page, unless it is paid. Returns its state, which is never open.
    pub async fn expire_checkout(&self, session_id: &str) -> Result<SessionState, ProcessorError> {
        let path = format!("/v1/checkout/sessions/{}/expire", segment(session_id)?);
        let key = format!("expire-{session_id}");
        match self.post(&path, Form::new(), &key).await {
            Ok(session) => session_state(&session),
            // Stripe rejects the request if the page has expired or is paid.
            Err(error @ ProcessorError::Invalid(_)) => match self.checkout_state(session_id).await?
            {
                SessionState::Open => Err(error),
                ended => Ok(ended),
            },
            Err(error) => Err(error),
        }
    }

    /// Creates a portal page and returns its URL.
    pub async fn create_portal(
        &self,
        customer_id: &str,
        return_url: &str,
    ) -> Result<String, ProcessorError> {
        let mut form = Form::new();
        form.add("customer", customer_id);
        form.add("return_url", return_url);
        // Each call has a new key, because several portal pages do no harm. The key still unites the attempts of one
        // call.
        let key = ids::payment_call_id();
        let session = self.post("/v1/billing_portal/sessions", form, &key).await?;
        text(&session, "url")
    }

    /// Charges the customer's saved card.
    pub async fn charge(&self, charge: &CardCharge<'_>) -> Result<PaymentIntent, ProcessorError> {
        let method = self.payment_method(charge.customer_id).await?;
        let method = method.ok_or_else(|| ProcessorError::Refused {
            code: "no_payment_method".to_owned(),
            payment_id: None,
        })?;
        let mut form = Form::new();
        form.add("amount", &charge.price_cents.to_string());
        form.add("currency", CURRENCY);
        form.add("customer", charge.customer_id);
        form.add("payment_method", &method);
        form.add("off_session", "true");
        form.add("confirm", "true");
        // The customer is absent, so payment methods that redirect are excluded.
        form.add("automatic_payment_methods[enabled]", "true");
        form.add("automatic_payment_methods[allow_redirects]", "never");
        form.add("description", &PurchaseItem::TopUp(charge.tier).title());
        form.add("metadata[purpose]", "auto_topup");
        form.add("metadata[tier]", charge.tier.name());
        form.add("metadata[user_id]", charge.user_id);
        form.add("metadata[charge_id]", charge.id);
        let intent = self.post("/v1/payment_intents", form, charge.id).await?;
        payment_intent(&intent)
    }

    /// The payment of a charge, for a charge whose response was lost. It reads the customer's payments since `since`,
    /// because Stripe's search is a minute behind.
    pub async fn find_payment(
        &self,
        customer_id: &str,
        charge_id: &str,
        since: Millis,
    ) -> Result<Option<PaymentIntent>, ProcessorError> {
        let mut after: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let mut form = Form::new();
            form.add("customer", customer_id);
            form.add("created[gte]", &since.seconds().to_string());
            form.add("limit", "100");
            if let Some(after) = &after {
                form.add("starting_after", after);
            }
            let page = self.get("/v1/payment_intents", form).await?;
            let intents = page["data"].as_array().ok_or_else(malformed)?;
            let is_it = |intent: &&Value| intent["metadata"]["charge_id"] == charge_id;
            if let Some(intent) = intents.iter().find(is_it) {
                return payment_intent(intent).map(Some);
            }
            after = match (page["has_more"].as_bool(), intents.last()) {
                (Some(true), Some(last)) => Some(text(last, "id")?),
                _ => return Ok(None),
            };
        }
        // The payment may be on a later page.
        Err(ProcessorError::unavailable(
            "the customer has more payments than are looked through",
        ))
    }

    /// An invoice with all its lines (<https://docs.stripe.com/api/invoice-line-item/retrieve>).
    pub async fn invoice(&self, invoice_id: &str) -> Result<Value, ProcessorError> {
        let path = format!("/v1/invoices/{}", segment(invoice_id)?);
        let mut invoice = self.get(&path, Form::new()).await?;
        let lines = self.read_list(&format!("{path}/lines"), None).await?;
        invoice["lines"] = json!({ "data": lines, "has_more": false });
        Ok(invoice)
    }

    /// All items of a subscription (<https://docs.stripe.com/api/subscription_items/list>).
    pub async fn subscription_items(
        &self,
        subscription_id: &str,
    ) -> Result<Vec<Value>, ProcessorError> {
        let of = Some(("subscription", subscription_id));
        self.read_list("/v1/subscription_items", of).await
    }

    /// Reads all pages of a list (<https://docs.stripe.com/api/pagination>).
    async fn read_list(
        &self,
        path: &str,
        filter: Option<(&str, &str)>,
    ) -> Result<Vec<Value>, ProcessorError> {
        let mut all = Vec::new();
        for _ in 0..MAX_PAGES {
            let mut form = Form::new();
            if let Some((name, value)) = filter {
                form.add(name, value);
            }
            form.add("limit", "100");
            if let Some(last) = all.last() {
                form.add("starting_after", &text(last, "id")?);
            }
            let mut page = self.get(path, form).await?;
            let Value::Array(entries) = page["data"].take() else {
                return Err(malformed());
            };
            let is_last = page["has_more"] != true || entries.is_empty();
            all.extend(entries);
            if is_last {
                return Ok(all);
            }
        }
        Err(ProcessorError::unavailable(
            "a list has more entries than are read",
        ))
    }

    /// Settings of the Stripe account that do not fit weir's, a sentence each: of the customer portal, of the prices in
    /// weir's settings, of webhook endpoints, and of the key.
    pub async fn problems(
        &self,
        settings: &PaymentSettings,
    ) -> Result<Vec<String>, ProcessorError> {
        let mut form = Form::new();
        form.add("is_default", "true");
        form.add("active", "true");
        let portals = self.get("/v1/billing_portal/configurations", form).await?;
        let mut problems: Vec<_> = match portals["data"][0].as_object() {
            Some(_) => portal_problems(&portals["data"][0]["features"]),
            None => vec!["the customer portal has no default configuration".to_owned()],
        };
        for item in PurchaseItem::all() {
            let Some(ItemPrice {
                price_cents,
                price_id: Some(id),
            }) = settings.offer(item)
            else {
                continue;
            };
            let price = self
                .get(&format!("/v1/prices/{}", segment(&id)?), Form::new())
                .await?;
            let (amount, currency) = (&price["unit_amount"], &price["currency"]);
            if *amount != price_cents || *currency != CURRENCY {
                let name = item.name();
                problems.push(format!(
                    "the price {id} of {name} is {amount} cents in {currency}, and {price_cents} cents in \"{CURRENCY}\" in \
                     weir's settings"
                ));
            }
        }
        match self.read_list("/v1/webhook_endpoints", None).await {
            Ok(endpoints) => problems.extend(webhook_problems(&endpoints)),
            Err(ProcessorError::Invalid(why)) => problems.push(format!(
                "the key cannot read webhook endpoints, so their events are not checked: {why}"
            )),
            Err(error) => return Err(error),
        }
        let mut form = Form::new();
        form.add("limit", "1");
        for path in ["/v1/invoices", "/v1/subscriptions"] {
            match self.get(path, form.clone()).await {
                Ok(_) => {}
                Err(ProcessorError::Invalid(why)) => problems.push(format!(
                    "the key cannot read {path}, so weir cannot apply events with long lists: {why}"
                )),
                Err(error) => return Err(error),
            }
        }
        Ok(problems)
    }

    /// The customer's payment method: the default for invoices, or else the last card.
    async fn payment_method(&self, customer_id: &str) -> Result<Option<String>, ProcessorError> {
        let path = format!("/v1/customers/{}", segment(customer_id)?);
        let customer = self.get(&path, Form::new()).await?;
        let chosen = &customer["invoice_settings"]["default_payment_method"];
        if let Some(id) = chosen.as_str() {
            return Ok(Some(id.to_owned()));
        }
        let mut form = Form::new();
        form.add("customer", customer_id);
        form.add("type", "card");
        form.add("limit", "1");
        let cards = self.get("/v1/payment_methods", form).await?;
        Ok(cards["data"][0]["id"].as_str().map(str::to_owned))
    }

    async fn post(&self, path: &str, form: Form, key: &str) -> Result<Value, ProcessorError> {
        let key = HeaderValue::try_from(key).map_err(|_| {
            ProcessorError::Invalid("the idempotency key has characters that none has".to_owned())
        })?;
        self.call(Method::POST, path, form, Some(key)).await
    }

    async fn get(&self, path: &str, form: Form) -> Result<Value, ProcessorError> {
        self.call(Method::GET, path, form, None).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        form: Form,
        key: Option<HeaderValue>,
    ) -> Result<Value, ProcessorError> {
        let begun = Instant::now();
        let form = form.encode();
        for number in 1.. {
            let left = self.pace.all.saturating_sub(begun.elapsed());
            let tried = self.once(&method, path, &form, key.as_ref());
            let heard = tokio::time::timeout(left.min(self.pace.each), tried).await;
            let (error, wanted) = match heard {
                Ok(StripeAttempt::Done(answer)) => return Ok(answer),
                Ok(StripeAttempt::Failed(error)) => return Err(error),
                Ok(StripeAttempt::Again(error, wanted)) => (error, wanted),
                Err(_) => (ProcessorError::unavailable("it took too long"), None),
            };
            let pause = wanted.unwrap_or_default().max(self.pause(number));
            let left = self.pace.all.saturating_sub(begun.elapsed());
            if number == MAX_TRIES || pause > self.pace.longest_pause || pause >= left {
                return Err(error);
            }
            tracing::info!(path, number, %error, "asking the processor of payments again");
            tokio::time::sleep(pause).await;
        }
        unreachable!("the last try ends it")
    }

    /// Pause after this number of attempts, with a random addition so that nodes do not retry at the same time.
    fn pause(&self, tries: u32) -> Duration {
        let pause = self.pace.pause * 2_u32.pow(tries - 1);
        let chance = (ids::unlike_any_other() % 256) as u32;
        pause + pause * chance / 512
    }

    async fn once(
        &self,
        method: &Method,
        path: &str,
        form: &str,
        key: Option<&HeaderValue>,
    ) -> StripeAttempt {
        let mut url = format!("{}{path}", self.base);
        if *method == Method::GET && !form.is_empty() {
            url = format!("{url}?{form}");
        }
        let mut request = self
            .http
            .request(method.clone(), url)
            .header(AUTHORIZATION, &self.authorization)
            .header(VERSION, API_VERSION);
        if let Some(key) = key {
            request = request
                .header(IDEMPOTENCY_KEY, key)
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form.to_owned());
        }
        let again = |error: reqwest::Error| {
            StripeAttempt::Again(
                ProcessorError::unavailable(outgoing::root_cause(error)),
                None,
            )
        };
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => return again(error),
        };
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(None) => break,
                Ok(Some(piece)) if body.len() + piece.len() > MAX_ANSWER_BYTES => {
                    return StripeAttempt::Failed(ProcessorError::unavailable(format!(
                        "its answer has more than {MAX_ANSWER_BYTES} bytes"
                    )));
                }
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Err(error) => return again(error),
            }
        }
        read(response.status(), response.headers(), &body)
    }
}

impl Form {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn add(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    fn encode(&self) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(&self.0).finish()
    }
}

/// The form of an order. The subscription of a plan and the payment of credits also have the metadata, because the
/// events about them can arrive first.
fn checkout_form(order: &CheckoutOrder<'_>) -> Form {
    let mut form = Form::new();
    let (mode, purpose, kind, object) = match order.item {
        PurchaseItem::Plan(_) => ("subscription", "plan", "plan", "subscription_data"),
        PurchaseItem::TopUp(_) => ("payment", "topup", "tier", "payment_intent_data"),
    };
    form.add("mode", mode);
    form.add("customer", order.customer_id);
    form.add("client_reference_id", order.user_id);
    form.add("success_url", &order.success_url);
    form.add("cancel_url", &order.cancel_url);
    form.add("expires_at", &order.expires_at.seconds().to_string());
    add_line(&mut form, order.item, order.offer);
    for to in ["metadata", &format!("{object}[metadata]")] {
        form.add(&format!("{to}[user_id]"), order.user_id);
        form.add(&format!("{to}[purpose]"), purpose);
        form.add(&format!("{to}[{kind}]"), order.item.name());
    }
    if matches!(order.item, PurchaseItem::TopUp(_)) {
        // Auto top-up charges this saved card.
        form.add(&format!("{object}[setup_future_usage]"), "off_session");
    }
    form
}

fn add_line(form: &mut Form, item: PurchaseItem, offer: &ItemPrice) {
    form.add("line_items[0][quantity]", "1");
    if let Some(price) = &offer.price_id {
        form.add("line_items[0][price]", price);
        return;
    }
    let data = "line_items[0][price_data]";
    form.add(&format!("{data}[currency]"), CURRENCY);
    form.add(
        &format!("{data}[unit_amount]"),
        &offer.price_cents.to_string(),
    );
    form.add(&format!("{data}[product_data][name]"), &item.title());
    if matches!(item, PurchaseItem::Plan(_)) {
        form.add(&format!("{data}[recurring][interval]"), "month");
    }
}

fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> StripeAttempt {
    let json = serde_json::from_slice::<Value>(body);
    if status.is_success() {
        return match json {
            Ok(answer) => StripeAttempt::Done(answer),
            Err(_) => StripeAttempt::Failed(malformed()),
        };
    }
    let json = json.unwrap_or_default();
    let error = &json["error"];
    let of = |name: &str| error[name].as_str().filter(|text| is_code(text));
    let text_of = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let is_transient = status == StatusCode::CONFLICT
        || status == StatusCode::TOO_MANY_REQUESTS
        || status.is_server_error();
    if is_transient {
        let wanted = headers.get(RETRY_AFTER).and_then(|after| {
            let seconds = after.to_str().ok()?.trim().parse().ok()?;
            Some(Duration::from_secs(seconds))
        });
        let error = ProcessorError::Unavailable {
            why: format!("it answered {}", status.as_u16()),
            retry_after: wanted,
        };
        return match text_of(SHOULD_RETRY) {
            Some("false") => StripeAttempt::Failed(error),
            _ => StripeAttempt::Again(error, wanted),
        };
    }
    let failed = if of("type") == Some("idempotency_error") {
        ProcessorError::KeyReused
    } else if status == StatusCode::PAYMENT_REQUIRED {
        let code = of("decline_code").or(of("code")).unwrap_or("declined");
        let payment = error["payment_intent"]["id"].as_str();
        ProcessorError::Refused {
            code: code.to_owned(),
            payment_id: payment.map(str::to_owned),
        }
    } else {
        let mut why = status.as_u16().to_string();
        let told = [
            ("type", of("type")),
            ("code", of("code")),
            ("param", of("param")),
            ("request", text_of(REQUEST_ID).filter(|id| is_code(id))),
        ];
        for (name, value) in told {
            if let Some(value) = value {
                why = format!("{why}, {name} {value}");
            }
        }
        ProcessorError::Invalid(why)
    };
    match text_of(SHOULD_RETRY) {
        Some("true") => StripeAttempt::Again(failed, None),
        _ => StripeAttempt::Failed(failed),
    }
}

/// Whether a text looks like a code or a field name, not like a quoted part of the request.
fn is_code(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.[]".contains(&byte);
    text.len() <= 100 && text.bytes().all(is_part)
}

fn malformed() -> ProcessorError {
    ProcessorError::unavailable("its answer is not what the API has")
}

fn text(object: &Value, name: &str) -> Result<String, ProcessorError> {
    let text = object[name].as_str();
    text.map(str::to_owned).ok_or_else(malformed)
}

/// Checks that an id can be a segment of a path.
fn segment(id: &str) -> Result<&str, ProcessorError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match !id.is_empty() && id.bytes().all(is_part) {
        true => Ok(id),
        false => Err(ProcessorError::Invalid("an id is none".to_owned())),
    }
}

fn session_state(session: &Value) -> Result<SessionState, ProcessorError> {
    match session["status"].as_str() {
        Some("open") => Ok(SessionState::Open),
        Some("complete") => Ok(SessionState::Complete),
        Some("expired") => Ok(SessionState::Expired),
        _ => Err(malformed()),
    }
}

fn payment_intent(intent: &Value) -> Result<PaymentIntent, ProcessorError> {
    let status = match intent["status"].as_str().ok_or_else(malformed)? {
        "succeeded" => PaymentStatus::Succeeded,
        "processing" => PaymentStatus::Processing,
        _ => PaymentStatus::Failed,
    };
    let error = &intent["last_payment_error"];
    let error = error["decline_code"].as_str().or(error["code"].as_str());
    Ok(PaymentIntent {
        id: text(intent, "id")?,
        status,
        error: error.map(str::to_owned),
    })
}
