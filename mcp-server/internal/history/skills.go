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

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// maxVersions bounds the stored versions of a skill.
const maxVersions = 50

// RecordSkill records that a skill now has this source, or is deleted. The other fields of v name the author. It stores
// no version equal to the latest one. While runs are in progress, it skips changes from outside: the runs' ends record
// them.
func (s *Store) RecordSkill(v operatorapi.SkillVersion, source string) {
	if s.isOff() {
		return
	}
	// A run that ends will report its changes with its name.
	if v.By == operatorapi.ByPerson {
		s.mu.Lock()
		busy := len(s.live) > 0
		s.mu.Unlock()
		if busy {
			return
		}
	}
	v.At = time.Now().UTC()
	v.Client = s.cleanField(v.Client)
	if !v.Deleted {
		sum := sha256.Sum256([]byte(source))
		v.SHA, v.Bytes = hex.EncodeToString(sum[:]), len(source)
	}
	number := s.nextNumber()
	s.queueJob(writeJob{size: int64(len(source)), do: func(ctx context.Context, tx *writeTransaction) error {
		scrubbed, _, err := s.scrubByProxy(ctx, source, nil)
		if err != nil {
			return err
		}
		return s.putVersion(ctx, tx, number, v, s.cfg.Clean(scrubbed))
	}})
}

func (s *Store) putVersion(
	ctx context.Context, tx *writeTransaction, number int64, v operatorapi.SkillVersion, source string,
) error {
	var before operatorapi.SkillVersion
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
		// The same source was stored when a tool changed it, and is now found in the folder.
		if before.SHA == v.SHA {
			return nil
		}
		if packed != nil {
			if err := unpackValue(packed, &old); err != nil {
				return err
			}
		}
	}
	v.Version = before.Version + 1
	v.Added, v.Removed = countChangedLines(old, source)
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	packed = nil
	if !v.Deleted && s.cfg.Mode == Full {
		if packed, err = packValue(source); err != nil {
			return err
		}
	}
	tx.target.grown += int64(len(text) + len(packed))
	err = putNumbered(&number, func() (bool, error) {
		return hasChanged(tx.ExecContext(ctx, `INSERT INTO skill_version VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (number) DO NOTHING`, number, v.Skill, v.Version, string(text), packed))
	})
	if err == nil {
		s.feed.publishEvent(operatorapi.HistoryEvent{Kind: operatorapi.EventSkill, RunID: v.Run, Skill: &v})
	}
	return err
}

// countChangedLines counts the lines that only one text has, with their repetitions.
func countChangedLines(before, after string) (added, removed int) {
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

// SkillVersions returns the versions of a skill, latest first. "" means all skills.
func (s *Store) SkillVersions(ctx context.Context, name string) ([]operatorapi.SkillVersion, error) {
	db, err := s.readConn(ctx)
	if err != nil {
		return nil, err
	}
	var w condition
	w.addEqual("skill", name)
	out, err := readRows[operatorapi.SkillVersion](ctx, db,
		"SELECT data FROM skill_version WHERE "+w.String()+" ORDER BY number DESC LIMIT 2000", w.args...)
	return out, s.checkReadError(err)
}

// SkillSource returns the source of a version of a skill, or ErrUnknown.
func (s *Store) SkillSource(ctx context.Context, name string, version int) (string, error) {
	db, err := s.readConn(ctx)
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
		return "", s.checkReadError(err)
	}
	var source string
	return source, unpackValue(packed, &source)
}

// SkillUses counts the stored runs that imported each skill.
func (s *Store) SkillUses(ctx context.Context) ([]operatorapi.SkillUse, error) {
	out := []operatorapi.SkillUse{}
	err := s.eachStoredRow(ctx, func(row *sql.Rows) error {
		var u operatorapi.SkillUse
		var number int64
		err := row.Scan(&u.Skill, &u.Runs, &u.OK, &number)
		u.Last = time.UnixMicro(number).UTC()
		out = append(out, u)
		return err
	}, `SELECT value, count(*), count(*) FILTER (WHERE state = 'ok'), max(number)
		FROM fact JOIN run USING (number) WHERE kind = 'skill' GROUP BY value ORDER BY count(*) DESC`)
	return out, err
}
