// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"sync"
	"time"
)

// stopwatch has something happen after a time in which scripts are not counted: each has a
// timeout of its own. One script is waited for at a time.
type stopwatch struct {
	mu     sync.Mutex
	alarms []*alarm
}

type alarm struct {
	timer *time.Timer
	at    time.Time
}

// after has something happen after a time; stop reports whether it came before that.
func (w *stopwatch) after(limit time.Duration, do func()) (stop func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := &alarm{time.AfterFunc(limit, do), time.Now().Add(limit)}
	w.alarms = append(w.alarms, a)
	return a.timer.Stop
}

// script puts all off by what a script may take, until it has ended: then by what it took.
func (w *stopwatch) script(limit time.Duration) (ended func()) {
	began := time.Now()
	w.move(limit)
	return func() { w.move(min(0, time.Since(began)-limit)) }
}

// move puts all off that has not happened.
func (w *stopwatch) move(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.alarms {
		if a.timer.Stop() {
			a.at = a.at.Add(by)
			a.timer.Reset(time.Until(a.at))
		}
	}
}
