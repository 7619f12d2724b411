-- The trigger form: an example to copy, for a table "accounts". From then on a session that says no token, or a stale one, can't write to
-- it.
--
--     mariadb mydb <protect-table.sql
--
-- Here one lock, "accounts", is for the whole table.

CREATE TRIGGER accounts_pawl_insert BEFORE INSERT ON accounts FOR EACH ROW CALL pawl.guard('accounts');
CREATE TRIGGER accounts_pawl_update BEFORE UPDATE ON accounts FOR EACH ROW CALL pawl.guard('accounts');
CREATE TRIGGER accounts_pawl_delete BEFORE DELETE ON accounts FOR EACH ROW CALL pawl.guard('accounts');

-- Instead, a lock for each row, "account/17" for the row whose id is 17. A row that changes its id needs both:
--
--     CREATE TRIGGER accounts_pawl_insert BEFORE INSERT ON accounts FOR EACH ROW CALL pawl.guard(CONCAT('account/', NEW.id));
--     CREATE TRIGGER accounts_pawl_delete BEFORE DELETE ON accounts FOR EACH ROW CALL pawl.guard(CONCAT('account/', OLD.id));
--     DELIMITER //
--     CREATE TRIGGER accounts_pawl_update BEFORE UPDATE ON accounts FOR EACH ROW
--     BEGIN
--         CALL pawl.guard(CONCAT('account/', OLD.id));
--         CALL pawl.guard(CONCAT('account/', NEW.id));
--     END //
--     DELIMITER ;
