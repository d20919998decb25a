// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/hub"
)

// Bounds of the page of the audit log.
const (
	actsShown    = 100              // rows of a page
	actsSearched = 20_000           // rows that a filter goes through for them
	actsChecked  = 200_000          // the newest rows, whose chain is checked
	checkedFor   = time.Minute      // how long what came of that is shown
	checkWithin  = 20 * time.Second // that it may take
)

// auditLog is the page of what people and tokens did.
type auditLog struct {
	hub   *hub.Hub
	chain *chainLook
}

// chainLook remembers whether the chain of the audit log held when it was last checked.
type chainLook struct {
	mu sync.Mutex
	chainState
}

// chainState says whether the chain holds.
type chainState struct {
	At      time.Time
	From    int64  // the row before those that were checked
	Rows    int    // that were
	Broken  string // why it does not hold
	Unknown string // why nobody knows
}

// page shows rows, the newest first, of a person and about a node where the address has them.
func (l auditLog) page(req *http.Request) (int, any, error) {
	q := req.URL.Query()
	who, about := strings.TrimSpace(q.Get("who")), strings.TrimSpace(q.Get("node"))
	data := map[string]any{"Who": who, "Node": about, "Chain": l.state(req.Context())}
	before := int64(math.MaxInt64)
	if text := q.Get("before"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			data["Wrong"] = "before is the number of a row"
			return http.StatusBadRequest, data, nil
		}
		before = n
	}
	rows, seen, err := l.rows(req.Context(), before, who, about)
	if err != nil {
		return 0, nil, err
	}
	data["Rows"] = rows
	if seen > 1 {
		q.Set("before", strconv.FormatInt(seen, 10))
		data["Older"] = "/audit?" + url.Values{"who": {who}, "node": {about}, "before": {q.Get("before")}}.Encode()
	}
	return http.StatusOK, data, nil
}

// rows returns some rows before one of them, and the number of the last one that was looked at.
func (l auditLog) rows(ctx context.Context, before int64, who, about string) (list []audit.Row, seen int64, err error) {
	seen = before
	for looked := 0; looked < actsSearched; looked += actsShown {
		some, err := l.hub.ActsBefore(ctx, seen, actsShown)
		if err != nil {
			return nil, 0, err
		}
		for _, r := range some {
			seen = r.Seq
			if who != "" && !strings.Contains(strings.ToLower(r.Who), strings.ToLower(who)) || about != "" && !isAbout(r, about) {
				continue
			}
			if list = append(list, r); len(list) == actsShown {
				return list, seen, nil
			}
		}
		if len(some) < actsShown {
			return list, 1, nil
		}
	}
	return list, seen, nil
}

// isAbout reports whether a row is about a node: what a login is about has the form of one, too.
func isAbout(r audit.Row, node string) bool {
	return r.About == node && (r.Act == audit.Accept || r.Act == audit.Release || r.Act == audit.Drained)
}

// state checks the chain, unless that was done a moment ago.
func (l auditLog) state(ctx context.Context) chainState {
	l.chain.mu.Lock()
	defer l.chain.mu.Unlock()
	if now := l.hub.Now(); now.Sub(l.chain.At) >= checkedFor || now.Before(l.chain.At) {
		ctx, cancel := context.WithTimeout(ctx, checkWithin)
		defer cancel()
		l.chain.chainState = l.check(ctx, actsChecked)
	}
	return l.chain.chainState
}

// check checks the chain of so many of the newest rows.
func (l auditLog) check(ctx context.Context, most int64) (c chainState) {
	c.At = l.hub.Now()
	fail := func(err error) chainState {
		if errors.Is(err, audit.ErrBroken) {
			c.Broken = err.Error()
		} else {
			c.At, c.Unknown = time.Time{}, err.Error() // the next one looks again
		}
		return c
	}
	last, err := l.hub.LastAct(ctx)
	if err != nil {
		return fail(err)
	}
	var before audit.Row
	if c.From = max(0, last-most); c.From > 0 {
		rows, err := l.hub.Acts(ctx, c.From-1, 1)
		if err == nil && (len(rows) == 0 || rows[0].Seq != c.From) {
			err = fmt.Errorf("%w: row %d is not there", audit.ErrBroken, c.From)
		}
		if err != nil {
			return fail(err)
		}
		before = rows[0]
	}
	for {
		rows, err := l.hub.Acts(ctx, before.Seq, actsAtOnce)
		if err == nil {
			err = audit.Check(before, rows)
		}
		if err != nil {
			return fail(err)
		}
		if c.Rows += len(rows); len(rows) == 0 {
			return c
		}
		before = rows[len(rows)-1]
	}
}
