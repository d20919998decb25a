// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/spec"
)

// tell says to systemd and to the fleet what a run found.
func (s *service) tell(ctx context.Context, st *spec.Status) {
	s.tellFleet(ctx, st)
	s.notify(fmt.Sprintf("STATUS=generation %d, health %s, sync %s", st.Generation, st.Health, st.Sync))
}

// notify says something to systemd, see sd_notify(3).
func (s *service) notify(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		s.o.Say("tell systemd: %v", err)
	}
}

// tellFleet reports beside the looks, one report at a time: a fleet's service that is slow
// must not keep a node from looking at itself. The node is looked at here, by turns with
// its verbs; sending waits for nobody.
func (s *service) tellFleet(ctx context.Context, st *spec.Status) {
	select {
	case s.telling <- struct{}{}:
	default:
		return // the next look tells it
	}
	send := func() {}
	_, err := s.once(ctx, func(n *node.Node, ctx context.Context) (*spec.Status, error) {
		one, to, err := n.Report(st)
		if err != nil || to == nil {
			return nil, err
		}
		if s.reporter == nil {
			if s.reporter, err = n.Reporter(); err != nil {
				s.reporter = nil
				return nil, err
			}
		}
		send = func() {
			news, err := s.reporter.Look(ctx, one, *to)
			if news {
				n.RecordReport(one)
			}
			s.reportUnless(ctx, err)
		}
		return nil, nil
	})
	s.reportUnless(ctx, err)
	s.beside.Go(func() {
		defer func() { <-s.telling }()
		send()
	})
}

// reportUnless says what went wrong, unless the service is about to end.
func (s *service) reportUnless(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.report(err)
	}
}
