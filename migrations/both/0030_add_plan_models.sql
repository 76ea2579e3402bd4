-- The time of the opening if only bought credits may pay for the hold, because the plan does not include the model.
ALTER TABLE holds ADD COLUMN top_up_only_at BIGINT;
