// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"encoding/binary"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
)

// nameServer answers each question for an address with 127.0.0.1, until it has answered
// so many.
type nameServer struct {
	conn     net.PacketConn
	left     atomic.Int32
	vanishes bool // then its machine answers that nobody listens; else nothing comes
}

func newNameServer(t *testing.T, answers int, vanishes bool) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, vanishes: vanishes}
	s.left.Store(int32(answers))
	t.Cleanup(func() { _ = conn.Close() }) // it may have vanished
	go s.serve()
	return s
}

func (s *nameServer) serve() {
	const header, typeA = 12, 1
	buffer := make([]byte, 512)
	for {
		n, from, err := s.conn.ReadFrom(buffer)
		if err != nil {
			return // it is closed
		}
		question := buffer[header:n]
		end := strings.IndexByte(string(question), 0) + 5 // the name, its type and its class
		asked := binary.BigEndian.Uint16(question[end-4:])
		if asked == typeA && s.left.Add(-1) < 0 {
			if s.vanishes {
				_ = s.conn.Close() // which is the fault
				return
			}
			continue
		}
		answer := append([]byte{buffer[0], buffer[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question[:end]...)
		if asked == typeA {
			answer[7] = 1
			answer = append(answer, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
		}
		if _, err := s.conn.WriteTo(answer, from); err != nil {
			return // as above
		}
	}
}

// named serves the registry under a name that the server knows, over a new connection for
// each question.
func (p *published) named(s *nameServer) oci.Source {
	p.t.Helper()
	well, err := registry.Handler(p.Registry.Ref().Layout)
	if err != nil {
		p.t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(well)
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	p.t.Cleanup(server.Close)
	before := net.DefaultResolver
	p.t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	ref, err := oci.ParseRef("registry.example:" + port + "/metal-a")
	if err != nil {
		p.t.Fatal(err)
	}
	source, err := pull.Open(ref, pull.Options{PlainHTTP: true})
	if err != nil {
		p.t.Fatal(err)
	}
	return source
}

// TestANameServerThatDies: after whichever of its answers a name server dies, a node with a
// good generation on its disk boots that, soon, and says why; one whose
// questions were all answered before runs what is new.
func TestANameServerThatDies(t *testing.T) {
	for how, vanishes := range map[string]bool{"it is silent": false, "nobody listens": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			const enough = 40
			answers := 0
			for ; answers < enough; answers++ {
				p := publish(t)
				p.disk.device = "/dev/vda1"
				p.overlay(1, p.layer("good").Overlay.Layer)
				p.boots()
				p.comesUp()
				p.overlay(2, p.layer("newer").Overlay.Layer)
				p.ways.source = p.named(newNameServer(t, answers, vanishes))
				p.machine.limits.ask, p.machine.limits.soon = 500*time.Millisecond, 500*time.Millisecond
				begun := time.Now()
				got := p.boots()
				if took := time.Since(begun); took > time.Minute { // it would wait for ten
					t.Fatalf("after %d answers that took %s", answers, took)
				}
				if got == 2 {
					break
				}
				if p.choice.source != "cached" || p.choice.sync == "current" || p.choice.detail == "" {
					t.Errorf("after %d answers: %s, %s: %q", answers, p.choice.source, p.choice.sync, p.choice.detail)
				}
			}
			if answers < 3 || answers == enough {
				t.Errorf("%d answers led to the newer generation: each boot asks for more than two", answers)
			}
		})
	}
}
