-- SQLite makes a table of each list of more than two with every row that it checks: a third of what it takes to write
-- those of a request. The checks say the same without lists. What is stored stays as it is; only the text that SQLite
-- checks by is another, which its documentation lets a migration edit (ALTER TABLE, section 7).
PRAGMA writable_schema = ON;

UPDATE sqlite_schema SET sql = replace(replace(sql,
    'source IN (''web'', ''api_key'', ''agent'')',
    'source = ''web'' OR source = ''api_key'' OR source = ''agent'''),
    'state IN (''open'', ''settled'', ''released'', ''expired'')',
    'state = ''open'' OR state = ''settled'' OR state = ''released'' OR state = ''expired''')
WHERE type = 'table' AND name = 'holds';

UPDATE sqlite_schema SET sql = replace(replace(sql,
    'kind IN (''settlement'', ''expiry'', ''late_settlement'', ''late_release'', ''grant'', ''lapse'', ''top_up'', ''refund'')',
    'kind = ''settlement'' OR kind = ''expiry'' OR kind = ''late_settlement'' OR kind = ''late_release'' '
    || 'OR kind = ''grant'' OR kind = ''lapse'' OR kind = ''top_up'' OR kind = ''refund'''),
    'kind IN (''settlement'', ''expiry'', ''late_settlement'', ''late_release'')',
    'kind = ''settlement'' OR kind = ''expiry'' OR kind = ''late_settlement'' OR kind = ''late_release''')
WHERE type = 'table' AND name = 'entries';

PRAGMA writable_schema = RESET;
