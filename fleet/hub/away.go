// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-os/caisson/fleet/store"
)

// ErrAway is returned while the database cannot be used. What it had is shown as it was.
var ErrAway = errors.New("the database of this service cannot be used now; it is tried again")

const (
	lookEvery = 5 * time.Second // at a database that is away, or that another instance writes to
	lookTime  = 30 * time.Second
)

// begin lets one change of the database be made, until end is called. It says why there
// can be none.
func (h *Hub) begin() (end func(), err error) {
	h.changing.Lock()
	if err := h.takes(); err != nil {
		h.changing.Unlock()
		return nil, err
	}
	return h.changing.Unlock, nil
}

// takes says why this instance takes nothing; nil where it does.
func (h *Hub) takes() error {
	switch {
	case h.Writes():
		return nil
	case h.trouble() != nil:
		return ErrAway
	}
	return ErrReadOnly
}

// trouble is why the database cannot be used.
func (h *Hub) trouble() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.away
}

// left notes that the database cannot be used: this instance takes nothing until it can.
// Another one may write meanwhile.
func (h *Hub) left(why error) {
	h.changing.Lock()
	defer h.changing.Unlock()
	h.writes.Store(false)
	h.o.Store.Release()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away == nil {
		h.o.Say("%v: reports and requests for slots are refused until the database can be used again, which is tried each %d seconds", why, int(lookEvery.Seconds()))
	}
	h.away = why
	h.heard()
}

// heard begins the time in which nodes can be heard; mu is held.
func (h *Hub) heard() {
	h.listens, h.sorted = h.o.began(), nil
	h.wake()
}

// look finds out whether the database of the one that writes can be used still, and
// otherwise whether it can be by now, or the other instance is gone.
func (h *Hub) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	h.changing.Lock()
	defer h.changing.Unlock()
	if h.Writes() {
		return h.o.Store.Holds(ctx)
	}
	err := h.o.Store.Write(ctx)
	taken := errors.Is(err, store.ErrTaken)
	was := h.trouble()
	switch {
	case taken && was == nil:
		return nil
	case err != nil && !taken:
		return err
	case was != nil: // it may have been put back from a copy
		h.rev = 0
	}
	if err := h.read(ctx); err != nil {
		return err
	}
	h.writes.Store(!taken)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = nil
	switch {
	case taken:
		h.o.Say("the database can be used again; another instance writes to it, and this one only shows")
	case was != nil:
		h.o.Say("the database can be used again, and this instance writes")
	default:
		h.o.Say("the other instance is gone: this one writes now")
	}
	h.heard()
	return nil
}
