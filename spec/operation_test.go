// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"testing"
	"time"
)

// TestOperationEnded: which states say that a run came to its end.
func TestOperationEnded(t *testing.T) {
	at := time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		o             OperationStatus
		ended, failed bool
	}{
		{OperationStatus{State: OperationDone, Since: at}, true, false},
		{OperationStatus{State: OperationScheduled, Since: at}, true, false},
		{OperationStatus{State: OperationScheduled}, false, false}, // it never ran
		{OperationStatus{State: OperationFailed, Since: at}, true, true},
		{OperationStatus{State: OperationWaiting, For: ForRetry, Since: at}, true, true},
		{OperationStatus{State: OperationWaiting, For: ForWindow, Since: at}, false, false},
		{OperationStatus{State: OperationRunning, Since: at}, false, false},
		{OperationStatus{State: OperationHolding, Since: at}, false, false},
		{OperationStatus{State: OperationCannot, Since: at}, false, false},
	} {
		when, failed := test.o.Ended()
		if when.Equal(at) != test.ended || failed != test.failed {
			t.Errorf("%s %s: %v %v", test.o.State, test.o.For, when, failed)
		}
	}
}
