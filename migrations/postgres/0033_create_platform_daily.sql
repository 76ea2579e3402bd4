-- The sums of `usage_daily` over all accounts, so that administrators' reports need not add up accounts.
CREATE TABLE platform_daily (
    day                 BIGINT NOT NULL,
    model               TEXT   NOT NULL,
    provider            TEXT   NOT NULL,
    requests            BIGINT NOT NULL,
    tokens_input        BIGINT NOT NULL,
    tokens_cache_read   BIGINT NOT NULL,
    tokens_cache_write  BIGINT NOT NULL,
    tokens_output       BIGINT NOT NULL,
    images              BIGINT NOT NULL,
    credits             BIGINT NOT NULL,
    overrun             BIGINT NOT NULL,
    provider_cost       BIGINT NOT NULL,
    PRIMARY KEY (day, model, provider)
);

-- One row: the number of the last entry in these sums. Nodes of earlier versions fold entries into `usage_daily` only.
CREATE TABLE platform_folded (
    number  BIGINT NOT NULL
);

-- Meanwhile no node folds: the watermark and the sums belong together.
SELECT number FROM entries_folded FOR UPDATE;

INSERT INTO platform_folded (number) SELECT number FROM entries_folded;

INSERT INTO platform_daily (day, model, provider, requests, tokens_input, tokens_cache_read, tokens_cache_write, tokens_output,
    images, credits, overrun, provider_cost)
SELECT day, model, provider, CAST(SUM(requests) AS BIGINT), CAST(SUM(tokens_input) AS BIGINT), CAST(SUM(tokens_cache_read) AS BIGINT),
    CAST(SUM(tokens_cache_write) AS BIGINT), CAST(SUM(tokens_output) AS BIGINT), CAST(SUM(images) AS BIGINT),
    CAST(SUM(credits) AS BIGINT), CAST(SUM(overrun) AS BIGINT), CAST(SUM(provider_cost) AS BIGINT)
FROM usage_daily GROUP BY day, model, provider;
