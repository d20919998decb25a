// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// In a bubble no time passes but what the test lets pass.
func TestProgress(t *testing.T) { synctest.Test(t, progress) }

func progress(t *testing.T) {
	ended := make(chan time.Duration, 1)
	var fed atomic.Int32
	p := &WatchdogProgress{Limit: 200 * time.Millisecond, Every: 5 * time.Millisecond, End: func(silent time.Duration) { ended <- silent },
		Feed: func() error { fed.Add(1); return nil }}
	p.Made()
	p.Watch(t.Logf)
	for range 20 { // twice the limit
		time.Sleep(20 * time.Millisecond)
		p.Made()
	}
	select {
	case silent := <-ended:
		t.Fatalf("ended after %s, with progress", silent)
	default:
	}
	if fed.Load() == 0 {
		t.Error("the hardware was not fed")
	}
	select {
	case silent := <-ended:
		if silent < p.Limit {
			t.Errorf("ended after %s", silent)
		}
	case <-time.After(time.Minute):
		t.Fatal("what hangs goes on")
	}
	atEnd := fed.Load()
	time.Sleep(50 * time.Millisecond)
	if fed.Load() != atEnd {
		t.Error("the hardware is fed after the end: it could not help where a restart hangs")
	}
}

func TestNoHardware(t *testing.T) {
	h, err := OpenWatchdog(filepath.Join(t.TempDir(), "none"), time.Minute)
	if !os.IsNotExist(err) || h.Timeout() != 0 || h.Feed() != nil {
		t.Errorf("%+v, %v", h, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err := OpenWatchdog(file, time.Minute); err == nil || h != nil {
		t.Errorf("a file passes for a watchdog: %+v", h)
	}
}
