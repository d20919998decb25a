// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
)

// TestWholeLog: a log is read to its end, and one that has more rows than are read is an error.
func TestWholeLog(t *testing.T) {
	var log []audit.Row
	for range 12 {
		var before audit.Row
		if len(log) > 0 {
			before = log[len(log)-1]
		}
		log = append(log, audit.New(time.Unix(7, 0), "eve", audit.Login, "id2", "ops").Chain(before))
	}
	after := func(seq int64) ([]audit.Row, error) { return log[seq:min(int(seq)+5, len(log))], nil }
	if rows, err := wholeLog(12, after); err != nil || len(rows) != 12 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if rows, err := wholeLog(11, after); rows != nil || err == nil || !strings.Contains(err.Error(), "more than 11 rows") {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	log[11].Who = "kim"
	if rows, err := wholeLog(12, after); rows != nil || err == nil || !strings.Contains(err.Error(), "row 12 is not what its sum is of") {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	log = nil
	if rows, err := wholeLog(12, after); rows == nil || len(rows) > 0 || err != nil {
		t.Errorf("an empty log: %v, %v", rows, err)
	}
}
