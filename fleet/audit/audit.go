// SPDX-License-Identifier: Apache-2.0

// Package audit is the log of what people and tokens did at a fleet's service: rows that are chained
// by hash, so that one which was changed, moved or taken out breaks the chain from there on.
//
// A row's sum is the SHA-256, in hexadecimal, of its line of JSON without the sum; the line has the sum
// of the row before in it. Who can write to the database can make all sums anew: an export of before
// shows that, see [Same]. The package keeps nothing.
package audit

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Act is a kind of row.
type Act string

// Acts.
const (
	Accept  Act = "accept"  // a key for a node
	Release Act = "release" // a slot from a node
	Drained Act = "drained" // said that a node is
	Login   Act = "login"   // a person came from the provider, or who has a token opened the page
	Token   Act = "token"   // a person was given a token that ends with the session
	Denied  Act = "denied"  // one of them came who may do nothing here
)

// Row is one line of the log.
type Row struct {
	Seq   int64     `json:"seq"` // from 1, without a gap
	At    time.Time `json:"at"`  // in whole seconds, UTC
	Who   string    `json:"who"` // name of a token, or of a person and the provider
	Act   Act       `json:"act"`
	About string    `json:"about"` // node, or what was taken; of a login the subject, or a token's role
	Said  string    `json:"said"`  // key, reason; of a login the groups, or the address
	After string    `json:"after"` // sum of the row before, "" for the first one
	Sum   string    `json:"sum"`   // of this one
}

// longest is how much of a text a row holds, in bytes.
const longest = 500

// New returns a row that is not chained yet.
func New(at time.Time, who string, act Act, about, said string) Row {
	return Row{At: at.UTC().Truncate(time.Second), Who: cut(who), Act: act, About: cut(about), Said: cut(said)}
}

// cut makes a text one that every database and JSON keep as it is.
func cut(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "\ufffd")
	if len(text) <= longest {
		return text
	}
	end := longest
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// Chain returns the row as the one after another.
func (r Row) Chain(before Row) Row {
	r.Seq, r.After = before.Seq+1, before.Sum
	r.Sum = r.sum()
	return r
}

func (r Row) sum() string {
	r.Sum = ""
	text, err := json.Marshal(r)
	if err != nil {
		panic("audit: " + err.Error()) // texts, a number and a time of these centuries
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// ErrBroken is returned for rows that are not as they were written.
var ErrBroken = errors.New("the audit log was changed")

// Check wants rows to be a chain. before is the row before the first one, the zero value where that
// is the log's first.
func Check(before Row, rows []Row) error {
	for _, r := range rows {
		switch {
		case r.Seq != before.Seq+1:
			return fmt.Errorf("%w: row %d comes after row %d", ErrBroken, r.Seq, before.Seq)
		case r.After != before.Sum:
			return fmt.Errorf("%w: row %d was made after another row %d than is there", ErrBroken, r.Seq, before.Seq)
		case r.Sum != r.sum():
			return fmt.Errorf("%w: row %d is not what its sum is of", ErrBroken, r.Seq)
		}
		before = r
	}
	return nil
}

// Same wants a log to go on from an export of before: each row that both have is the same, and the
// export's last row is there.
func Same(export, now []Row) error {
	at := map[int64]string{}
	for _, r := range now {
		at[r.Seq] = r.Sum
	}
	for _, r := range export {
		if at[r.Seq] != r.Sum {
			return fmt.Errorf("%w: row %d of the export, by %s on %s, is not there any more", ErrBroken, r.Seq, r.Who, r.At.Format(time.RFC3339))
		}
	}
	return nil
}

// ErrLong is returned for a log of which not all rows are read.
var ErrLong = errors.New("the audit log is too long")

// Whole returns a log that is a chain to its end, which has at most so many rows; after returns some of
// those behind a row, none at the end.
func Whole(most int, after func(seq int64) ([]Row, error)) ([]Row, error) {
	all := []Row{}
	err := follow(Row{}, after, func(rows []Row) error {
		if all = append(all, rows...); len(all) > most {
			return fmt.Errorf("%w: it has more than %d rows, and those behind them were not checked", ErrLong, most)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// follow hands out the rows behind one to the end of their chain.
func follow(before Row, after func(seq int64) ([]Row, error), take func([]Row) error) error {
	for {
		rows, err := after(before.Seq)
		if err == nil {
			err = Check(before, rows)
		}
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := take(rows); err != nil {
			return err
		}
		before = rows[len(rows)-1]
	}
}

// Log keeps rows. Acts returns some behind one of them, and ActsBefore some before one, the newest first.
type Log interface {
	Acts(ctx context.Context, after int64, most int) ([]Row, error)
	ActsBefore(ctx context.Context, before int64, most int) ([]Row, error)
	LastAct(ctx context.Context) (int64, error)
}

// Chain says whether the chain of a log holds.
type Chain struct {
	At      time.Time
	From    int64  // the row before those that were checked
	Rows    int    // that were
	Broken  string // why it does not hold
	Unknown string // why nobody knows
}

// AtOnce is how many rows are read at a time.
const AtOnce = 10_000

// Newest checks the chain of so many of the newest rows of a log.
func Newest(ctx context.Context, log Log, most int64, now time.Time) Chain {
	c := Chain{At: now}
	last, err := log.LastAct(ctx)
	var before Row
	if c.From = max(0, last-most); err == nil && c.From > 0 {
		var rows []Row
		if rows, err = log.Acts(ctx, c.From-1, 1); err == nil && (len(rows) == 0 || rows[0].Seq != c.From) {
			err = fmt.Errorf("%w: row %d is not there", ErrBroken, c.From)
		} else if err == nil {
			before = rows[0]
		}
	}
	if err == nil {
		err = follow(before, func(seq int64) ([]Row, error) { return log.Acts(ctx, seq, AtOnce) },
			func(rows []Row) error { c.Rows += len(rows); return nil })
	}
	switch {
	case errors.Is(err, ErrBroken):
		c.Broken = err.Error()
	case err != nil:
		c.At, c.Unknown = time.Time{}, err.Error() // the next look checks it again
	}
	return c
}

// Bounds of a look.
const (
	checked    = 200_000          // the newest rows
	checkedFor = time.Minute      // how long what came of that is told
	within     = 20 * time.Second // that it may take
)

// Look remembers whether a chain held when it was last checked.
type Look struct {
	mu   sync.Mutex
	last Chain
}

// Chain checks the chain of a log's newest rows, unless that was done a moment ago.
func (l *Look) Chain(ctx context.Context, log Log, now time.Time) Chain {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.last.At) >= checkedFor || now.Before(l.last.At) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		l.last = Newest(ctx, log, checked, now)
	}
	return l.last
}

// Read reads an export: a row of JSON a line.
func Read(text []byte) (rows []Row, err error) {
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		var r Row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// ReadExport reads a log that was exported to a file, nothing without a name.
func ReadExport(name string) ([]Row, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	var export struct{ Rows []Row }
	if err == nil {
		err = json.Unmarshal(text, &export)
	}
	return export.Rows, err
}
