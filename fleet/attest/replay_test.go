// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-eventlog/register"
	"github.com/google/go-eventlog/tcg"

	"github.com/caisson-os/caisson/spec"
)

// quotedOfOVMF are the registers of the machine of test/vm TestLongMeasured, behind its kexec: a
// loader of systemd's stub 257, started by systemd-boot on OVMF with swtpm. Its firmware's log is
// testdata/ovmf.log.
var quotedOfOVMF = map[uint]string{
	0: "ad310499b483c102206912826ceced64d3c56f6da6e0264a7ecb2a993f257717", 1: "1a7dff6f118be11678d050d519930a97016f794155dd602eae557a892ee5cfcd",
	2: "3410b9935d57037330b3c0865afaa89ce8efb59e84548029bb8685f5d33839d2", 3: "3d458cfe55cc03ea1f443f1562beec8df51c75e14a9fcf9a7234a13f198e7969",
	4: "2e3724e5238ad21e23fecf966e2be96a7789e145323d289bb5c8845323a894f9", 5: "a5ceb755d043f32431d63e39f5161464620a3437280494b5850dc1b47cc074e0",
	6: "3d458cfe55cc03ea1f443f1562beec8df51c75e14a9fcf9a7234a13f198e7969", 7: "65caf8dd1e0ea7a6347b635d2b379c93b9a1351edc2afc3ecda700e534eb3068",
	9: "37c4712b8d293dbf34c27c9741a3a4dd60901e5d471bdcf850a14ead929691cc", 11: "c0ca92cb330364cb3f47dd609dcf7c4a2fefa5d49f955d0ba148f89f82dffde0",
	spec.PCR: "508c27266a347c0fde31ccb9bf3f901e95531b7aecc5422504b07548d2229481",
}

// TestReplayOVMF: a real firmware's log gives each register, and any changed byte of a digest does not.
func TestReplayOVMF(t *testing.T) {
	log, err := os.ReadFile("testdata/ovmf.log")
	if err != nil {
		t.Fatal(err)
	}
	registers := registersOfOVMF(t)
	b, err := replay(log, registers, nil)
	if err != nil || b.stub != registers[stubRegister] {
		t.Fatalf("%x, %v", b.stub, err)
	}
	for _, r := range []uint{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13} {
		was := registers[r]
		other := was
		other[31] ^= 1
		registers[r] = other
		if _, err := replay(log, registers, nil); err == nil || !strings.Contains(err.Error(), "register") {
			t.Errorf("register %d is another one: %v", r, err)
		}
		registers[r] = was
	}
}

func registersOfOVMF(t testing.TB) map[uint]Register {
	t.Helper()
	registers := map[uint]Register{}
	for r, text := range quotedOfOVMF {
		value, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		registers[r] = Register(value)
	}
	return registers
}

// listing is a firmware's log whose first event lists these hashes, each as a number and a size, and whose
// second event has as many digests of one byte by hash 11, and as many bytes behind them.
func listing(hashes [][2]uint16, digests, behind int) []byte {
	le := binary.LittleEndian
	head := append([]byte("Spec ID Event03\x00"), 0, 0, 0, 0, 0, 2, 0, 2)
	head = le.AppendUint32(head, uint32(len(hashes)))
	for _, h := range hashes {
		head = le.AppendUint16(le.AppendUint16(head, h[0]), h[1])
	}
	head = append(head, 0) // the vendor says nothing
	log := le.AppendUint32(append([]byte{0, 0, 0, 0, 3, 0, 0, 0}, make([]byte, 20)...), uint32(len(head)))
	log = append(append(log, head...), 0, 0, 0, 0, 1, 0, 0, 0)
	log = le.AppendUint32(log, uint32(digests))
	log = append(log, bytes.Repeat([]byte{11, 0, 0}, digests)...)
	return append(le.AppendUint32(log, uint32(behind)), make([]byte, behind)...)
}

// slowLog is a log that a quote may have, of which each digest would cost room for each hash that is listed.
func slowLog() []byte {
	hashes := slices.Repeat([][2]uint16{{11, math.MaxUint16}}, 100_000)
	hashes[len(hashes)-1][1] = 1
	return listing(hashes, 160_000, math.MaxUint16)
}

// TestReplayListedHashes: a log that lists more hashes than a TPM has banks, one of them twice, or with a size that
// no hash has, is refused before anything is parsed.
func TestReplayListedHashes(t *testing.T) {
	if n := len(slowLog()); n > spec.MaxFirmware {
		t.Fatalf("%d bytes: no quote has so much", n)
	}
	var nine [][2]uint16
	for i := range uint16(9) {
		nine = append(nine, [2]uint16{11 + i, 1})
	}
	for _, test := range []struct {
		name string
		log  []byte
		want string
	}{
		{"eight", listing(nine[:8], 1, 0), "an event of register 0 has no SHA-256"},
		{"nine", listing(nine, 1, 0), "lists 9 hashes, 8 are the most"},
		{"twice", listing([][2]uint16{{11, 32}, {11, 1}}, 1, 100), "lists hash 0x000b twice"},
		{"large", listing([][2]uint16{{11, 1}, {12, 65}}, 1, 0), "lists hash 0x000c with 65 bytes, 64 are the most"},
		{"slow", slowLog(), "lists 100000 hashes"},
		{"cut", listing(nine[:8], 1, 0)[:70], "the firmware's log: "},
	} {
		if _, err := replay(test.log, registersOfOVMF(t), nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// FuzzReplay: whatever a firmware's log is, it is refused or gives the registers that were quoted.
func FuzzReplay(f *testing.F) {
	log, err := os.ReadFile("testdata/ovmf.log")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(log)
	f.Add([]byte{})
	f.Add(listing([][2]uint16{{11, 65}, {11, 1}}, 1, 65))
	registers := registersOfOVMF(f)
	f.Fuzz(func(t *testing.T, log []byte) {
		if _, err := replay(log, registers, nil); err != nil {
			return
		}
		parsed, err := tcg.ParseEventLog(log, tcg.ParseOpts{AllowPadding: true})
		if err != nil {
			t.Fatal(err)
		}
		left, err := fold(parsed.Events(register.HashSHA256))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range spec.Quoted {
			if r != spec.PCR && left[int(r)] != registers[r] {
				t.Errorf("register %d: the log gives %x", r, left[int(r)])
			}
		}
	})
}
