// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"strings"
	"testing"
	"time"
)

// A process that holds a layout's lock and hangs keeps others out for a time, not for good.
func TestALayoutThatIsHeld(t *testing.T) {
	defer func(d time.Duration) { lockWithin = d }(lockWithin)
	lockWithin = 100 * time.Millisecond
	dir := t.TempDir()
	lock, err := lockLayout(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // only the lock matters
	for _, shared := range []bool{false, true} {
		if _, err := lockLayout(dir, shared); err == nil || !strings.HasSuffix(err.Error(), "another process has held it for 100ms") {
			t.Errorf("shared %t: %v", shared, err)
		}
	}
}
