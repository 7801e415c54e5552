//! Two little servers for `hide_the_parts.toml`, over stdio: `shop catalogue`, and
//! `shop warehouse`.

use rmcp::{
    ServerHandler, ServiceExt,
    handler::server::wrapper::Parameters,
    schemars::{self, JsonSchema},
    serde::Deserialize,
    tool, tool_handler, tool_router,
    transport::stdio,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("catalogue") => Catalogue.serve(stdio()).await?.waiting().await?,
        Some("warehouse") => Warehouse.serve(stdio()).await?.waiting().await?,
        _ => return Err("usage: shop catalogue | shop warehouse".into()),
    };
    Ok(())
}

/// The catalogue of articles.
struct Catalogue;

/// The stock of each article.
struct Warehouse;

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "rmcp::serde")]
struct Article {
    /// The article's number.
    article: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "rmcp::serde")]
struct Stock {
    /// The article's number.
    sku: String,
    /// The owner of the stock.
    owner: String,
}

#[tool_router]
impl Catalogue {
    #[tool(description = "Describes an article", annotations(read_only_hint = true))]
    fn describe(&self, Parameters(Article { article }): Parameters<Article>) -> String {
        format!("article {article}, as good as new")
    }

    #[tool(description = "Tells a price", annotations(read_only_hint = true))]
    fn price(&self, Parameters(Article { article }): Parameters<Article>) -> String {
        format!("{} €", 5 + article.len())
    }

    #[tool(description = "Lists all articles", annotations(read_only_hint = true))]
    fn list(&self) -> String {
        "a1, a2, b10".to_owned()
    }

    #[tool(description = "Deletes an article for good")]
    fn delete_article(&self, Parameters(Article { article }): Parameters<Article>) -> String {
        format!("{article} is gone")
    }
}

#[tool_router]
impl Warehouse {
    #[tool(description = "Counts what is in stock", annotations(read_only_hint = true))]
    fn count(&self, Parameters(Stock { sku, owner }): Parameters<Stock>) -> String {
        format!("{owner} has {} of {sku}", 3 * sku.len())
    }

    #[tool(description = "Tells where an article lies", annotations(read_only_hint = true))]
    fn locate(&self, Parameters(Stock { sku, .. }): Parameters<Stock>) -> String {
        format!("{sku}: aisle 4")
    }

    #[tool(description = "Moves an article elsewhere")]
    fn relocate(&self, Parameters(Stock { sku, .. }): Parameters<Stock>) -> String {
        format!("{sku} is elsewhere")
    }

    #[tool(description = "Ships an article")]
    fn ship(&self, Parameters(Stock { sku, owner }): Parameters<Stock>) -> String {
        format!("{owner} ships {sku}")
    }
}

#[tool_handler]
impl ServerHandler for Catalogue {}

#[tool_handler]
impl ServerHandler for Warehouse {}
