//! The SDK's handler over one conversation.

use std::borrow::Cow;
use std::sync::Arc;

use ringfence_client::Session;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, DiscoverResult, ErrorData, Implementation,
    InitializeRequestParams, InitializeResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ResourceTemplate, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use tokio::sync::OwnedSemaphorePermit;

use crate::conversation::{Conversation, Trouble};
use crate::limits::{DESCRIPTION_WAIT_MAX, FILE_BYTES_MAX};
use crate::{describe, files, tools};

/// One conversation, as the SDK serves it.
#[derive(Debug)]
pub struct Service {
    conversation: Arc<Conversation>,
    /// The newest revision of the protocol that this transport can serve.
    newest: ProtocolVersion,
    /// Its place among the conversations, given back with it.
    _place: Option<OwnedSemaphorePermit>,
}

impl Service {
    /// Over a transport that is one conversation by itself.
    #[must_use]
    pub fn new(conversation: Arc<Conversation>) -> Self {
        Service { conversation, newest: ProtocolVersion::LATEST, _place: None }
    }

    /// Over a transport that ties its requests together by the handshake: revisions without one have no conversation
    /// there.
    pub(crate) fn with_handshake(conversation: Arc<Conversation>, place: OwnedSemaphorePermit) -> Self {
        Service { conversation, newest: ProtocolVersion::LATEST_WITH_INITIALIZE, _place: Some(place) }
    }

    /// Leases the session, so that its limits can be told; a backend that is slow is not waited for.
    async fn be_described(&self) {
        match tokio::time::timeout(DESCRIPTION_WAIT_MAX, self.conversation.session()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "no session yet"),
            Err(_) => tracing::info!("the backend is not there yet"),
        }
    }
}

impl ServerHandler for Service {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let server = Implementation::new("ringfence", env!("CARGO_PKG_VERSION")).with_title("ringfence");
        ServerConfig::new(capabilities)
            .with_server_info(server)
            .with_instructions(describe::instructions(self.conversation.handle().as_ref()))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::known_up_to(&self.newest))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        self.be_described().await;
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn discover(&self, _context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        if !self.newest.has_initialize() {
            self.be_described().await;
        }
        Ok(DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), self.get_info()))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.be_described().await;
        let mut listed = ListToolsResult::with_all_items(describe::tools(self.conversation.handle().as_ref()));
        listed.cache_scope = Some(CacheScope::Private);
        Ok(listed)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.clone();
        match tools::call(&self.conversation, request, &context).await {
            Some(done) => Ok(done.into()),
            None => Err(ErrorData::invalid_params(format!("there is no tool {name:?}"), None)),
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let listed = self.conversation.with_files(async |session: &Session| session.list_recursive("").await).await;
        let cursor = request.and_then(|request| request.cursor);
        let (page, next) = files::page(&listed.map_err(internal)?, cursor.as_deref());
        let mut listed = ListResourcesResult::with_all_items(page);
        (listed.next_cursor, listed.cache_scope, listed.ttl_ms) = (next, Some(CacheScope::Private), Some(0));
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new(format!("{}{{+path}}", files::PREFIX), "workspace file")
            .with_title("A file of the workspace");
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let unknown = |why: String| ErrorData::resource_not_found(why, None);
        let path = files::path_of(&request.uri).ok_or_else(|| unknown(format!("{}: no such resource", request.uri)))?;
        let fetched =
            self.conversation.with_files(async |session: &Session| files::fetch(session, &path, FILE_BYTES_MAX).await);
        let bytes = fetched.await.map_err(|trouble| match trouble.is_of_the_request() {
            true => unknown(tools::in_words(trouble)),
            false => internal(trouble),
        })?;
        let mut read = ReadResourceResult::new(vec![files::contents(&path, &bytes)]);
        (read.cache_scope, read.ttl_ms) = (Some(CacheScope::Private), Some(0));
        Ok(read.into())
    }
}

impl Trouble {
    /// Whether another request would have done better.
    fn is_of_the_request(&self) -> bool {
        matches!(self, Trouble::Client(error) if error.status().is_some_and(|status| (400..500).contains(&status)))
    }
}

fn internal(trouble: Trouble) -> ErrorData {
    ErrorData::internal_error(tools::in_words(trouble), None)
}
