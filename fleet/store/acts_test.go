// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/storetest"
)

// TestActs: rows of several changes are one chain, in either database, and one that was altered there
// breaks it.
func TestActs(t *testing.T) {
	require.Slow(t)
	storetest.Each(t, func(t *testing.T, name string) {
		s := open(t, name, true)
		row := func(said string) audit.Row {
			return audit.New(time.Unix(7, 0), "eve", audit.Accept, "n1", said)
		}
		for _, c := range []Change{{Acts: []audit.Row{row("a"), row("b")}}, {Events: []Event{{At: time.Unix(7, 0), Node: "n1", What: "x"}}}, {Acts: []audit.Row{row("c")}}} {
			if err := s.Apply(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := s.Acts(t.Context(), 0, 10)
		if err != nil || len(rows) != 3 || rows[2].Said != "c" || audit.Check(audit.Row{}, rows) != nil {
			t.Fatalf("%+v, %v", rows, err)
		}
		if after, err := s.Acts(t.Context(), 1, 1); err != nil || len(after) != 1 || after[0] != rows[1] {
			t.Errorf("%+v, %v", after, err)
		}
		if _, err := s.db.ExecContext(t.Context(), `UPDATE acts SET line = REPLACE(line, '"who":"eve"', '"who":"kim"') WHERE seq = 2`); err != nil {
			t.Fatal(err)
		}
		if rows, err := s.Acts(t.Context(), 0, 10); err != nil || !errors.Is(audit.Check(audit.Row{}, rows), audit.ErrBroken) {
			t.Errorf("%+v, %v", rows, err)
		}
	})
}
