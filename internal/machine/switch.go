// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// Switch stands between a machine's cards and its network, as a managed switch does: it tags
// frames to the cards, and is their partner by LACP. It learns no addresses: what comes from
// the network goes to all cards.
type Switch struct {
	VLAN uint16 // of the frames on the side of the cards, and others are dropped; 0: they have no tag
	LACP bool   // it answers; else it hears none

	// Filter sees each frame without its tag, of the network (0) or of a card (1, 2, …), and
	// returns it as it is passed on, nil for none. A nil Filter passes all on.
	Filter func(from int, frame []byte) []byte

	mu    sync.Mutex
	ports []net.Conn // the network's first; nil while nothing is plugged
}

// Listen waits for so many cards, and returns what [Options.Cables] wants, until ctx ends.
func (s *Switch) Listen(ctx context.Context, cards int) (cables []string, err error) {
	s.ports = make([]net.Conn, cards+1)
	for n := range s.ports {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		cables = append(cables, l.Addr().String())
		go s.accept(n, l)
		context.AfterFunc(ctx, func() {
			l.Close() // nobody plugs anything any more
			s.plug(n, nil)
		})
	}
	return cables, nil
}

func (s *Switch) accept(n int, l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // it is over
		}
		s.plug(n, conn)
		go s.serve(n, conn)
	}
}

// plug puts a cable into a port, in the place of the one that was there.
func (s *Switch) plug(n int, conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[n] != nil {
		s.ports[n].Close() // the machine behind it is off
	}
	s.ports[n] = conn
}

// serve passes on what comes from a port. QEMU sends each frame behind its length.
func (s *Switch) serve(n int, conn net.Conn) {
	for {
		var length [4]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return // the machine is off
		}
		size := binary.BigEndian.Uint32(length[:])
		if size > maxFrame {
			return // this is not a card
		}
		frame := make([]byte, size)
		if _, err := io.ReadFull(conn, frame); err != nil || len(frame) < 14 {
			return // as above
		}
		s.pass(n, frame)
	}
}

// maxFrame is more than any that QEMU sends, with segments that the card leaves to others.
const maxFrame = 1 << 17

// Types of frames.
const (
	TypeIPv4 = 0x0800
	TypeARP  = 0x0806
	TypeVLAN = 0x8100 // IEEE 802.1Q
	TypeSlow = 0x8809 // LACP and others, IEEE 802.3 annex 57A
)

// TypeOf returns the type of a frame.
func TypeOf(frame []byte) uint16 { return binary.BigEndian.Uint16(frame[12:]) }

// AsksDHCP reports whether a frame asks for an address by DHCPv4.
func AsksDHCP(frame []byte) bool {
	if len(frame) < 42 || TypeOf(frame) != TypeIPv4 || frame[23] != 17 { // UDP
		return false
	}
	udp := frame[14:]
	if head := int(udp[0]&15) * 4; head+4 <= len(udp) {
		return binary.BigEndian.Uint16(udp[head+2:]) == 67
	}
	return false
}

// pass is one frame from a port.
func (s *Switch) pass(from int, frame []byte) {
	if from != 0 && TypeOf(frame) == TypeSlow {
		if s.LACP && len(frame) >= 14+42 && frame[14] == 1 {
			s.send(from, lacpAnswer(from, frame))
		}
		return
	}
	if from != 0 && s.VLAN != 0 {
		if len(frame) < 18 || TypeOf(frame) != TypeVLAN || binary.BigEndian.Uint16(frame[14:])&0xfff != s.VLAN {
			return // it is on no network
		}
		frame = append(bytes.Clone(frame[:12]), frame[16:]...)
	}
	if s.Filter != nil {
		if frame = s.Filter(from, frame); frame == nil {
			return
		}
	}
	if from != 0 {
		s.send(0, frame)
		return
	}
	for card := 1; card < len(s.ports); card++ {
		s.Send(card, frame)
	}
}

// Send sends a frame without a tag to a card, which gets it with one.
func (s *Switch) Send(card int, frame []byte) { s.send(card, s.tag(frame)) }

// tag is a frame as it goes to the cards.
func (s *Switch) tag(frame []byte) []byte {
	if s.VLAN == 0 {
		return frame
	}
	tagged := append(bytes.Clone(frame[:12]), TypeVLAN>>8, TypeVLAN&255, byte(s.VLAN>>8), byte(s.VLAN))
	return append(tagged, frame[12:]...)
}

func (s *Switch) send(n int, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[n] == nil {
		return
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(len(frame)))
	_, _ = s.ports[n].Write(append(out, frame...)) // a machine that is off hears nothing
}

// SwitchMAC is the switch's own address.
var SwitchMAC = net.HardwareAddr{0x02, 0, 0, 0, 0, 0xaa}

// lacpAnswer returns the answer of a partner that takes the port (IEEE 802.1AX, 6.4.2.3).
func lacpAnswer(port int, frame []byte) []byte {
	out := append([]byte{0x01, 0x80, 0xc2, 0, 0, 2}, SwitchMAC...)
	out = append(out, TypeSlow>>8, TypeSlow&255, 1, 1)
	out = append(out, 1, 20, 0x80, 0)
	out = append(out, SwitchMAC...)
	out = append(out, 0, 1, 0, 0x80, 0, byte(port), 0x3f, 0, 0, 0) // active, fast, in sync, collecting and distributing
	out = append(out, 2, 20)
	out = append(out, frame[18:36]...) // its own, as it has said
	out = append(out, 3, 16, 0, 0)
	out = append(out, make([]byte, 12)...)
	return append(out, make([]byte, 124-len(out))...)
}
