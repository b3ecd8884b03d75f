package history

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
)

// maxVersions is how many versions of a skill are kept.
const maxVersions = 50

// Skill notes that a skill has this source now, or is deleted. What v says besides is who did it. Nothing is stored if
// the latest version is the same. Changes from outside are left to the end of the runs that may have made them.
func (s *Store) Skill(v historyapi.SkillVersion, source string) {
	if s.off() {
		return
	}
	if v.By == historyapi.ByPerson {
		s.mu.Lock()
		busy := len(s.live) > 0
		s.mu.Unlock()
		if busy {
			return
		}
	}
	v.At = time.Now().UTC()
	v.Client = s.field(v.Client)
	if !v.Deleted {
		sum := sha256.Sum256([]byte(source))
		v.SHA, v.Bytes = hex.EncodeToString(sum[:]), len(source)
	}
	number := s.number()
	s.put(job{size: int64(len(source)), do: func(ctx context.Context, tx *transaction) error {
		scrubbed, _, err := s.scrub(ctx, source, nil)
		if err != nil {
			return err
		}
		return s.putVersion(ctx, tx, number, v, s.cfg.Clean(scrubbed))
	}})
}

func (s *Store) putVersion(
	ctx context.Context, tx *transaction, number int64, v historyapi.SkillVersion, source string,
) error {
	var before historyapi.SkillVersion
	var data string
	var packed []byte
	err := tx.QueryRowContext(ctx, `SELECT data, source FROM skill_version WHERE skill = $1 ORDER BY version DESC LIMIT 1`,
		v.Skill).Scan(&data, &packed)
	old := ""
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if v.Deleted {
			return nil
		}
	case err != nil:
		return err
	default:
		if err := json.Unmarshal([]byte(data), &before); err != nil {
			return err
		}
		if before.SHA == v.SHA {
			return nil
		}
		if packed != nil {
			if err := unpack(packed, &old); err != nil {
				return err
			}
		}
	}
	v.Version = before.Version + 1
	v.Added, v.Removed = changedLines(old, source)
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	packed = nil
	if !v.Deleted && s.cfg.Mode == Full {
		if packed, err = pack(source); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO skill_version VALUES ($1, $2, $3, $4, $5)`,
		number, v.Skill, v.Version, string(text), packed)
	if err == nil {
		s.feed.publish(historyapi.Event{Kind: historyapi.EventSkill, RunID: v.Run, Skill: &v})
	}
	return err
}

// changedLines counts lines that are in one text and not in the other, however often they are in each.
func changedLines(before, after string) (added, removed int) {
	count := map[string]int{}
	for line := range strings.Lines(after) {
		count[strings.TrimRight(line, "\r\n")]++
	}
	for line := range strings.Lines(before) {
		count[strings.TrimRight(line, "\r\n")]--
	}
	for _, n := range count {
		added, removed = added+max(n, 0), removed+max(-n, 0)
	}
	return added, removed
}

// SkillVersions are the versions of a skill, latest first; of all skills if the name is empty.
func (s *Store) SkillVersions(ctx context.Context, name string) ([]historyapi.SkillVersion, error) {
	db, err := s.db(ctx)
	if err != nil {
		return nil, err
	}
	var w where
	w.same("skill", name)
	out, err := read[historyapi.SkillVersion](ctx, db,
		"SELECT data FROM skill_version WHERE "+w.String()+" ORDER BY number DESC LIMIT 2000", w.args...)
	return out, s.checked(err)
}

// SkillSource is the source of a version of a skill. ErrUnknown: it is not kept.
func (s *Store) SkillSource(ctx context.Context, name string, version int) (string, error) {
	db, err := s.db(ctx)
	if err != nil {
		return "", err
	}
	var packed []byte
	err = db.QueryRowContext(ctx, "SELECT source FROM skill_version WHERE skill = $1 AND version = $2", name, version).
		Scan(&packed)
	if errors.Is(err, sql.ErrNoRows) || err == nil && packed == nil {
		return "", ErrUnknown
	}
	if err != nil {
		return "", s.checked(err)
	}
	var source string
	return source, unpack(packed, &source)
}

// SkillUses is how often skills were imported by the runs that are kept.
func (s *Store) SkillUses(ctx context.Context) ([]historyapi.SkillUse, error) {
	out := []historyapi.SkillUse{}
	err := s.each(ctx, func(row *sql.Rows) error {
		var u historyapi.SkillUse
		var number int64
		err := row.Scan(&u.Skill, &u.Runs, &u.OK, &number)
		u.Last = time.UnixMicro(number).UTC()
		out = append(out, u)
		return err
	}, `SELECT value, count(*), count(*) FILTER (WHERE state = 'ok'), max(number)
		FROM fact JOIN run USING (number) WHERE kind = 'skill' GROUP BY value ORDER BY count(*) DESC`)
	return out, err
}
