// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/internal/cli"
)

// audited is the output of fleet audit -o json.
type audited struct {
	Rows []audit.Row `json:"rows"`
}

// mostActs bounds what a service that has no end can fill here.
const mostActs = 1_000_000

func (a *app) fleetAuditCommand() *cobra.Command {
	var at asking
	var against string
	c := verb("fleet audit", func(c *cobra.Command, _ []string) error {
		return a.fleetAudit(c.Context(), &at, against)
	})
	at.flags(c.Flags())
	c.Flags().StringVar(&against, "against", "", "`FILE` with an earlier log, as -o json writes it")
	return c
}

func (a *app) fleetAudit(ctx context.Context, at *asking, against string) error {
	var export audited
	if against != "" {
		text, err := os.ReadFile(against)
		if err == nil {
			err = json.Unmarshal(text, &export)
		}
		if err != nil {
			return cli.Usage("'caisson fleet audit -o json >FILE' writes one", "--against %s: %v", against, err)
		}
	}
	out := audited{Rows: []audit.Row{}}
	for before := (audit.Row{}); ; {
		rows, err := actsAfter(ctx, at, before.Seq)
		if err != nil {
			return err
		}
		if err := audit.Check(before, rows); err != nil {
			return cli.WithHint(err, "compare the service's database with a backup; nodes obey none of it")
		}
		if out.Rows = append(out.Rows, rows...); len(rows) == 0 || len(out.Rows) > mostActs {
			break
		}
		before = rows[len(rows)-1]
	}
	if err := audit.Same(export.Rows, out.Rows); err != nil {
		return cli.WithHint(err, "compare the service's database with a backup; nodes obey none of it")
	}
	return a.show(out, func() {
		for _, r := range out.Rows {
			cli.Printf(a.out, "%d\t%s\t%s\t%s\t%s\t%s\n", r.Seq, r.At.Format("2006-01-02 15:04:05"), r.Who, r.Act, r.About, r.Said)
		}
	})
}

// actsAfter asks for one answer's rows.
func actsAfter(ctx context.Context, at *asking, seq int64) ([]audit.Row, error) {
	text, err := at.Do(ctx, http.MethodGet, "/v1/acts?after="+strconv.FormatInt(seq, 10), "")
	if err != nil {
		return nil, err
	}
	rows, err := audit.Read(text)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return rows, nil
}
