// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"os"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// TestLedgerGolden: the account ledger that 0.9.0 wrote is read, and written byte-equal.
func TestLedgerGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden/ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	var l ledger
	if unknown, err := spec.DecodeKnown(golden, &l); err != nil || unknown != nil || l.Kind != KindLedger || len(l.Accounts) != 2 {
		t.Fatalf("%+v, unknown %q, %v", l, unknown, err)
	}
	if again, err := spec.Encode(l); err != nil || !bytes.Equal(again, golden) {
		t.Errorf("written otherwise: %v\n%s", err, again)
	}
}
