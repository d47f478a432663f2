//! Compiled schemas, kept by their exact text: compiled once, however many requests ask for one at the same
//! time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use moka::future::Cache;

use crate::contract::schema::CompiledSchema;
use crate::contract::schema::SchemaError;
use crate::settings::SchemaLimits;

/// Bytes that the compiled schemas in use may take, as they are weighed.
const CACHE_BYTES: u64 = 64 << 20;
/// Bytes that a compiled schema takes at the least, measured; and for each byte of its text.
const WEIGHT: (usize, usize) = (16 << 10, 8);
/// A schema that nobody has used for so long is let go.
const IDLE: Duration = Duration::from_secs(3_600);

/// The compiled schemas in use.
pub struct SchemaCache {
    /// By text rather than by digest: a keyed hash and a comparison cost a tenth of a digest.
    cache: Cache<Bytes, Arc<CompiledSchema>, ahash::RandomState>,
    limits: SchemaLimits,
}

impl SchemaCache {
    /// An empty cache. `limits` are met before the compiler sees a schema.
    pub fn new(limits: SchemaLimits) -> Self {
        let weight = |_: &Bytes, schema: &Arc<CompiledSchema>| {
            u32::try_from(WEIGHT.0 + WEIGHT.1 * schema.text().len()).unwrap_or(u32::MAX)
        };
        Self {
            cache: Cache::builder()
                .weigher(weight)
                .max_capacity(CACHE_BYTES)
                .time_to_idle(IDLE)
                .build_with_hasher(ahash::RandomState::new()),
            limits,
        }
    }

    /// The compiled form of a schema. A failure is not kept.
    pub async fn compiled(&self, text: Bytes) -> Result<Arc<CompiledSchema>, Arc<SchemaError>> {
        if text.len() > self.limits.bytes {
            return Err(Arc::new(SchemaError::Bytes { found: text.len(), max: self.limits.bytes }));
        }
        if let Some(schema) = self.cache.get(&text).await {
            return Ok(schema);
        }
        let limits = self.limits;
        // The caller's buffer may be the whole request; the cache keeps the schema alone.
        let own = Bytes::copy_from_slice(&text);
        self.cache
            .try_get_with(own.clone(), async move {
                // A small schema can hold a costly pattern, so none is compiled on a thread that serves others.
                let compiling = tokio::task::spawn_blocking(move || CompiledSchema::compile(own, limits));
                match compiling.await {
                    Ok(compiled) => compiled.map(Arc::new),
                    Err(_) => Err(SchemaError::Unfinished),
                }
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_schema_is_compiled_once_and_a_failure_is_not_kept() {
        let cache = SchemaCache::new(SchemaLimits::default());
        let text = Bytes::from_static(br#"{"type":"object"}"#);
        let (one, two) = tokio::join!(cache.compiled(text.clone()), cache.compiled(text.clone()));
        assert!(Arc::ptr_eq(&one.unwrap(), &two.unwrap()));
        let bad = Bytes::from_static(br#"{"type":"objec"}"#);
        assert!(cache.compiled(bad.clone()).await.is_err());
        assert!(cache.compiled(bad).await.is_err());
        cache.cache.run_pending_tasks().await;
        assert_eq!(cache.cache.entry_count(), 1);
    }

    #[tokio::test]
    async fn what_is_too_long_is_not_even_looked_up() {
        let cache = SchemaCache::new(SchemaLimits { bytes: 8, ..SchemaLimits::default() });
        let refused = cache.compiled(Bytes::from_static(br#"{"type":"object"}"#)).await.unwrap_err();
        assert!(matches!(*refused, SchemaError::Bytes { found: 17, max: 8 }));
    }
}
