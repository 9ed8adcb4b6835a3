//! Fetches a model's configuration from the Hugging Face hub by repository name, into the hub's own cache.
//!
//! It must not read weights, or anything when told to stay offline. Layer 11.

use super::environment::HubSettings;
use super::error::CliError;
use super::output::note;
use crate::model::FILE_LIMIT;
use hf_hub::api::sync::{ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};
use std::path::PathBuf;

/// The file a model is read from, and the one that may lie beside it.
const CONFIG: &str = "config.json";
const BESIDE: &str = "hf_quant_config.json";
/// Longest owner or name that the hub has (bytes).
const NAME_MAX: usize = 96;

/// Whether a word has the form of a repository's name, `owner/name`.
pub(super) fn is_repository(word: &str) -> bool {
    let part = |part: &str| {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        (1..=NAME_MAX).contains(&part.len())
            && part.bytes().all(legal)
            && !part.starts_with(['.', '-'])
            && !part.contains("..")
    };
    word.split_once('/')
        .is_some_and(|(owner, name)| part(owner) && part(name))
}

/// The folder of the hub's cache that holds the configuration of a repository's main revision.
///
/// Online the newest is fetched; offline what was fetched before is taken.
///
/// # Errors
/// No such repository, no right to read it, no network, nothing in the cache: one sentence that
/// names the repository and where it was looked for.
pub(super) fn configuration(name: &str, settings: &HubSettings) -> Result<PathBuf, CliError> {
    let cache = settings
        .cache
        .clone()
        .map_or_else(Cache::default, Cache::new);
    let config = match settings.offline {
        true => cached(name, &cache)?,
        false => fetched(name, cache, settings)?,
    };
    Ok(config.with_file_name(""))
}

fn cached(name: &str, cache: &Cache) -> Result<PathBuf, CliError> {
    let found = cache.model(name.to_owned()).get(CONFIG);
    found.ok_or_else(|| {
        CliError::Usage(format!(
            "{name}: HF_HUB_OFFLINE is set, and {} holds no {CONFIG} of it",
            cache.path().display()
        ))
    })
}

fn fetched(name: &str, cache: Cache, settings: &HubSettings) -> Result<PathBuf, CliError> {
    let mut builder = ApiBuilder::from_cache(cache).with_progress(false);
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    if let Some(token) = &settings.token {
        builder = builder.with_token(Some(token.clone()));
    }
    let asked = settings.endpoint.as_deref().unwrap_or("the hub");
    note(&format!("{name}: asking {asked} for its {CONFIG}"));
    let refused = |error: ApiError| CliError::Usage(format!("{name}: {asked}: {}", reason(&error)));
    let api = builder.build().map_err(refused)?;
    let repo = api.repo(Repo::new(name.to_owned(), RepoType::Model));
    let files = repo.info().map_err(refused)?.siblings;
    let has = |file: &str| files.iter().any(|one| one.rfilename == file);
    if !has(CONFIG) {
        return Err(CliError::Usage(format!(
            "{name}: {asked}: the repository has no {CONFIG}"
        )));
    }
    for file in [BESIDE, CONFIG].into_iter().filter(|file| has(file)) {
        let size = api.metadata(&repo.url(file)).map_err(refused)?.size();
        if size as u64 > FILE_LIMIT {
            return Err(CliError::Usage(format!(
                "{name}: {asked}: {file} is of {size} bytes, over the {FILE_LIMIT} that are read"
            )));
        }
        // Not `get`, which would take what the cache holds, of however old a revision.
        repo.download(file).map_err(refused)?;
    }
    repo.get(CONFIG).map_err(refused)
}

/// The hub's answer as a clause, with what to do about it.
fn reason(error: &ApiError) -> String {
    let said = error.to_string();
    let said = said.strip_prefix("request error: ").unwrap_or(&said);
    match said {
        "http status: 401" | "http status: 403" => {
            format!("{said}: it does not exist, or is gated and HF_TOKEN may not read it")
        }
        "http status: 404" => format!("{said}: there is no such model"),
        other => other.escape_debug().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_repository;

    #[test]
    fn only_an_owner_and_a_name_are_a_repository() {
        for yes in ["Qwen/Qwen3-30B-A3B", "a/b", "nvidia/x_1.5", "0/0"] {
            assert!(is_repository(yes), "{yes}");
        }
        let long = format!("a/{}", "b".repeat(97));
        for no in [
            "a", "a/b/c", "/a", "a/", "./a", "../a", "a/..", "a/b c", "a/b?c", "a/é", "", &long,
        ] {
            assert!(!is_repository(no), "{no}");
        }
    }
}
