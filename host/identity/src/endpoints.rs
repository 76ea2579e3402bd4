//! Endpoints: one row for each, with its path, method, operation, access and tenancy.
//!
//! A feature lists its endpoints beside its handlers, in a function `endpoints()`. The router, the OpenAPI document, the
//! permissions of roles and the tests of tenants all read these rows; nothing else names an endpoint. [`handlers!`] takes
//! path, method and operation from the `#[utoipa::path]` of each handler. [`get`], [`post`] and [`any`] are for pages and
//! for standards' endpoints, which the document leaves out.
//!
//! **Invariant:** a route without a row is closed to organisations and to keys for inference: without [`Access`] among a
//! request's extensions, its permission is [`Permission::Own`]. **Invariant:** a handler gets its caller only from an
//! extractor that authenticates and checks the row's permission: [`Caller`](crate::Caller) and its kin. Tests send a
//! request without credentials to every row that is not [`Access::Open`], so a handler cannot forget the extractor.
//!
//! To add an endpoint, write a handler with `#[utoipa::path]`, and add it to a row of the feature's `endpoints()`.
//!
//! `utoipa-axum` has a similar macro, but it depends on the unmaintained `paste`, and describes every schema of the API at
//! each start. Here, the description stays a function until a client asks for the document.

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, any as any_method, on};
use http::Method;
use http::request::Parts;
use utoipa::__dev::{SchemaReferences, Tags};
use utoipa::Path;
use utoipa::openapi::path::{HttpMethod, Operation};
use utoipa::openapi::{RefOr, Schema};

use super::roles::Permission;

#[doc(hidden)]
pub use pastey::paste;

/// The callers of an endpoint, and the permission that they need in an organisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody, without authentication.
    Open,
    /// The payment processor, by its signature.
    Signature,
    /// API keys and web users, for an account.
    User(Permission),
    /// Web users, for an account.
    Web(Permission),
    /// Web users for themselves, never for an organisation.
    Person,
    /// Web users for themselves, through the [gate](super::gate).
    Gated,
    /// Users with a session of the console, for an account.
    Session(Permission),
    /// Administrators with a session of the console.
    AdminSession,
    /// Administrators.
    Admin,
    /// Administrators, and services that may change plugins.
    Operator,
    /// Other services of the operator.
    Service,
    /// An issuer's directory.
    Directory,
}

/// The relation of an endpoint to tenants. The integration tests check each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tenancy {
    /// The response is the same for all callers.
    Common,
    /// The response is about the caller, and no part of the path names a record.
    Own,
    /// The path has the id of a record of the caller.
    OwnById,
    /// The path has a name, and each tenant has its own record of this name.
    OwnByName,
    /// The body has the id of a record of the caller, a web user.
    OwnByBody,
    /// The endpoint needs a console session.
    BySession,
    /// The endpoint rejects tenants.
    Closed,
}

/// An endpoint: a row.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// `None` for all methods.
    pub method: Option<Method>,
    /// The path, with parameters in braces, such as `/v1/models/{*id}`.
    pub path: String,
    /// The callers and their permission.
    pub access: Access,
    /// The relation to tenants.
    pub tenancy: Tenancy,
    description: Option<Description>,
}

/// The part of the OpenAPI document about an endpoint.
#[derive(Debug, Clone, Copy)]
struct Description {
    methods: fn() -> Vec<HttpMethod>,
    operation: fn() -> Operation,
    tags: fn() -> Vec<&'static str>,
    schemas: fn(&mut Vec<NamedSchema>),
    /// Another operation id than the handler's.
    id: Option<&'static str>,
}

/// A schema with its name.
pub type NamedSchema = (String, RefOr<Schema>);

/// Handlers of endpoints with the same access.
pub struct Handlers<S>(Vec<EndpointHandler<S>>);

/// A handler with its method and path.
pub struct EndpointHandler<S> {
    method: Option<Method>,
    path: String,
    tenancy: Option<Tenancy>,
    description: Option<Description>,
    route: Box<dyn FnOnce(Access) -> MethodRouter<S>>,
}

/// The endpoints of a feature, or of a listener.
pub struct Endpoints<S> {
    router: Router<S>,
    rows: Vec<Endpoint>,
}

/// A handler behind a row: it notes the row's access in each request.
#[derive(Clone)]
struct RowHandler<H> {
    handler: H,
    access: Access,
}

impl Access {
    /// Returns the permission of members of organisations.
    pub const fn permission(self) -> Permission {
        match self {
            Self::User(permission) | Self::Web(permission) | Self::Session(permission) => {
                permission
            }
            Self::AdminSession => Permission::Belong,
            Self::Open
            | Self::Signature
            | Self::Person
            | Self::Gated
            | Self::Admin
            | Self::Operator
            | Self::Service
            | Self::Directory => Permission::Own,
        }
    }

    /// Returns the strictest relation to tenants that fits the access and the path.
    fn tenancy(self, path: &str) -> Tenancy {
        match self {
            Self::Open | Self::Signature => Tenancy::Common,
            Self::Gated => Tenancy::OwnByBody,
            Self::Session(_) => Tenancy::BySession,
            Self::AdminSession | Self::Admin | Self::Operator | Self::Service | Self::Directory => {
                Tenancy::Closed
            }
            Self::User(_) | Self::Web(_) | Self::Person if path.contains('{') => Tenancy::OwnById,
            Self::User(_) | Self::Web(_) | Self::Person => Tenancy::Own,
        }
    }
}

/// Returns the permission that a request's endpoint needs.
pub(super) fn permission_of_request(parts: &Parts) -> Permission {
    let access = parts.extensions.get::<Access>();
    access.map_or(Permission::Own, |access| access.permission())
}

impl Endpoint {
    /// Returns the method's name; `ANY` for all methods.
    pub fn method_name(&self) -> &str {
        self.method.as_ref().map_or("ANY", Method::as_str)
    }

    /// Returns the name, as in `GET /swarms/{execution_id}`.
    pub fn name(&self) -> String {
        format!("{} {}", self.method_name(), self.path)
    }

    /// Returns the path as OpenAPI writes it, which has no parameters of several segments.
    pub fn documented_path(&self) -> String {
        self.path.replace("{*", "{")
    }

    /// Returns the endpoint's operation in the document and adds the schemas to which it refers. `None` for an endpoint that
    /// the document leaves out.
    pub fn describe(&self, schemas: &mut Vec<NamedSchema>) -> Option<(HttpMethod, Operation)> {
        let described = self.description?;
        let method = (described.methods)().into_iter().next()?;
        let mut operation = (described.operation)();
        let tags = (described.tags)().into_iter().map(str::to_owned);
        operation.tags.get_or_insert_default().extend(tags);
        if let Some(id) = described.id {
            operation.operation_id = Some(id.to_owned());
        }
        (described.schemas)(schemas);
        Some((method, operation))
    }

    /// Returns whether the document has the endpoint.
    pub fn is_documented(&self) -> bool {
        self.description.is_some()
    }
}

impl<S: Clone + Send + Sync + 'static> Endpoints<S> {
    /// Returns no endpoints.
    #[expect(clippy::new_without_default, reason = "nothing needs a default")]
    pub fn new() -> Self {
        Self {
            router: Router::new(),
            rows: Vec::new(),
        }
    }

    /// Adds a row for each handler.
    #[must_use]
    pub fn row(mut self, access: Access, handlers: impl Into<Handlers<S>>) -> Self {
        for handler in handlers.into().0 {
            let tenancy = handler.tenancy;
            self.router = self.router.route(&handler.path, (handler.route)(access));
            self.rows.push(Endpoint {
                tenancy: tenancy.unwrap_or_else(|| access.tenancy(&handler.path)),
                method: handler.method,
                path: handler.path,
                access,
                description: handler.description,
            });
        }
        self
    }

    /// Adds all endpoints of another feature.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.rows.extend(other.rows);
        self
    }

    /// Changes the router of the endpoints so far, such as by a layer. Routes that this adds have no row.
    #[must_use]
    pub fn map_router(self, change: impl FnOnce(Router<S>) -> Router<S>) -> Self {
        Self {
            router: change(self.router),
            rows: self.rows,
        }
    }

    /// Returns the rows.
    pub fn rows(&self) -> &[Endpoint] {
        &self.rows
    }

    /// Returns the router.
    pub fn into_router(self) -> Router<S> {
        self.router
    }
}

impl<S: Clone + Send + Sync + 'static> Handlers<S> {
    #[doc(hidden)]
    pub fn new(handlers: impl IntoIterator<Item = EndpointHandler<S>>) -> Self {
        Self(handlers.into_iter().collect())
    }

    fn undocumented<H, T>(method: Option<Method>, path: &str, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        Self(vec![EndpointHandler::new(
            method,
            path.to_owned(),
            None,
            handler,
        )])
    }

    /// Serves the handler at another path than its operation names, as an operation with another id.
    #[must_use]
    pub fn at(mut self, path: &str, id: &'static str) -> Self {
        for handler in &mut self.0 {
            path.clone_into(&mut handler.path);
            if let Some(description) = &mut handler.description {
                description.id = Some(id);
            }
        }
        self
    }

    /// Sets the relation to tenants, if it is not the strictest one of the access and the path.
    #[must_use]
    pub fn tenancy(mut self, tenancy: Tenancy) -> Self {
        for handler in &mut self.0 {
            handler.tenancy = Some(tenancy);
        }
        self
    }
}

impl<S: Clone + Send + Sync + 'static> EndpointHandler<S> {
    fn new<H, T>(
        method: Option<Method>,
        path: String,
        description: Option<Description>,
        handler: H,
    ) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        // axum knows a filter for each method that a row can have.
        let filter = method.clone();
        let filter = filter.and_then(|method| MethodFilter::try_from(method).ok());
        Self {
            method,
            path,
            tenancy: None,
            description,
            route: Box::new(move |access| {
                let handler = RowHandler { handler, access };
                match filter {
                    Some(filter) => on(filter, handler),
                    None => any_method(handler),
                }
            }),
        }
    }

    /// Takes path, method and operation from `P`, which a handler's `#[utoipa::path]` generates; for [`handlers!`].
    #[doc(hidden)]
    pub fn documented<P, H, T>(handler: H) -> Self
    where
        P: Path + SchemaReferences + Tags<'static>,
        H: Handler<T, S>,
        T: 'static,
    {
        let description = Description {
            methods: P::methods,
            operation: P::operation,
            tags: P::tags,
            schemas: P::schemas,
            id: None,
        };
        let method = match P::methods().first() {
            Some(HttpMethod::Post) => Method::POST,
            Some(HttpMethod::Put) => Method::PUT,
            Some(HttpMethod::Patch) => Method::PATCH,
            Some(HttpMethod::Delete) => Method::DELETE,
            _ => Method::GET,
        };
        Self::new(Some(method), P::path(), Some(description), handler)
    }
}

impl<S, const COUNT: usize> From<[Handlers<S>; COUNT]> for Handlers<S> {
    fn from(handlers: [Self; COUNT]) -> Self {
        Self(handlers.into_iter().flat_map(|some| some.0).collect())
    }
}

impl<H, T, S> Handler<T, S> for RowHandler<H>
where
    H: Handler<T, S>,
{
    type Future = H::Future;

    fn call(self, mut request: Request, state: S) -> H::Future {
        request.extensions_mut().insert(self.access);
        self.handler.call(request, state)
    }
}

/// Returns a `GET` handler that the document leaves out.
pub fn get<S, H, T>(path: &str, handler: H) -> Handlers<S>
where
    S: Clone + Send + Sync + 'static,
    H: Handler<T, S>,
    T: 'static,
{
    Handlers::undocumented(Some(Method::GET), path, handler)
}

/// Returns a `POST` handler that the document leaves out.
pub fn post<S, H, T>(path: &str, handler: H) -> Handlers<S>
where
    S: Clone + Send + Sync + 'static,
    H: Handler<T, S>,
    T: 'static,
{
    Handlers::undocumented(Some(Method::POST), path, handler)
}

/// Returns a handler of another method, or of all methods if it is `None`, that the document leaves out.
pub fn any<S, H, T>(method: Option<Method>, path: &str, handler: H) -> Handlers<S>
where
    S: Clone + Send + Sync + 'static,
    H: Handler<T, S>,
    T: 'static,
{
    Handlers::undocumented(method, path, handler)
}

/// Returns handlers with their `#[utoipa::path]`: `handlers!(create_key, members::list_members)`. With
/// `get_metrics => handler`, `handler` serves the endpoint of the operation `get_metrics`.
#[macro_export]
macro_rules! handlers {
    ($($($name:ident)::+ $(=> $handler:expr)?),+ $(,)?) => {
        $crate::endpoints::Handlers::new([
            $($crate::handlers!(@handler [] $($name)::+ $(=> $handler)?)),+
        ])
    };
    (@handler [$($module:ident)*] $name:ident) => {
        $crate::handlers!(@handler [$($module)*] $name => $($module::)* $name)
    };
    (@handler [$($module:ident)*] $name:ident => $handler:expr) => {
        $crate::endpoints::paste! {
            $crate::endpoints::EndpointHandler::documented::<$($module::)* [<__path_ $name>], _, _>($handler)
        }
    };
    (@handler [$($module:ident)*] $next:ident :: $($rest:ident)::+ $(=> $handler:expr)?) => {
        $crate::handlers!(@handler [$($module)* $next] $($rest)::+ $(=> $handler)?)
    };
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::routing;
    use tower_service::Service as _;

    use super::*;

    /// Answers with the permission that the endpoint needs.
    #[utoipa::path(get, path = "/rows/{id}", tag = "tests", responses((status = 200, body = String)))]
    async fn show_permission(request: Request) -> String {
        let (parts, _) = request.into_parts();
        format!("{:?}", permission_of_request(&parts))
    }

    async fn permission(router: &Router, method: Method, path: &str) -> String {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).expect("a request");
        let Ok(response) = router.clone().call(request).await;
        let body = to_bytes(response.into_body(), 1_000).await;
        String::from_utf8(body.expect("a body").into()).expect("a text")
    }

    #[tokio::test]
    async fn a_route_has_the_permission_of_its_row_and_none_is_closed() {
        let endpoints = Endpoints::new()
            .row(
                Access::User(Permission::Infer),
                post("/rows/{id}", show_permission),
            )
            .row(Access::Web(Permission::Pay), handlers!(show_permission))
            .row(Access::Person, any(None, "/person", show_permission));
        let rows: Vec<_> = endpoints.rows().iter().map(Endpoint::name).collect();
        assert_eq!(rows, ["POST /rows/{id}", "GET /rows/{id}", "ANY /person"]);
        let router = endpoints
            .into_router()
            .route("/new", routing::get(show_permission));
        for (method, path, expected) in [
            (Method::POST, "/rows/a", "Infer"),
            (Method::GET, "/rows/a", "Pay"),
            (Method::PUT, "/person", "Own"),
            (Method::GET, "/new", "Own"),
        ] {
            assert_eq!(permission(&router, method, path).await, expected, "{path}");
        }
    }

    #[test]
    fn the_default_tenancy_is_the_strictest_of_access_and_path() {
        let tenancy = |access: Access, path| access.tenancy(path);
        let user = Access::User(Permission::Belong);
        assert_eq!(tenancy(user, "/keys/{id}"), Tenancy::OwnById);
        assert_eq!(tenancy(user, "/keys"), Tenancy::Own);
        assert_eq!(tenancy(Access::Admin, "/keys/{id}"), Tenancy::Closed);
    }

    #[test]
    fn an_endpoint_at_another_path_is_another_operation() {
        let handlers = handlers!(self::show_permission).at("/others/{*id}", "show_other");
        let endpoints = Endpoints::<()>::new().row(Access::Open, handlers);
        let [row] = endpoints.rows() else {
            panic!("one row");
        };
        let (_, operation) = row.describe(&mut Vec::new()).expect("an operation");
        assert_eq!(operation.operation_id.as_deref(), Some("show_other"));
        assert_eq!(operation.tags, Some(vec!["tests".to_owned()]));
        assert_eq!(row.documented_path(), "/others/{id}");
    }
}
