// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/hub"
)

// Bounds of the page of the audit log.
const (
	actsShown    = 100    // rows of a page
	actsSearched = 20_000 // rows that a filter goes through for them
)

// auditLog is the page of what people and tokens did.
type auditLog struct {
	hub   *hub.Hub
	chain *audit.Look
}

// page shows rows, the newest first, of a person and about a node where the address has them.
func (l auditLog) page(req *http.Request) (int, any, error) {
	q := req.URL.Query()
	who, about := strings.TrimSpace(q.Get("who")), strings.TrimSpace(q.Get("node"))
	data := map[string]any{"Who": who, "Node": about, "Chain": l.chain.Chain(req.Context(), l.hub.Log(), l.hub.Now())}
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
		some, err := l.hub.Log().ActsBefore(ctx, seen, actsShown)
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
