// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"encoding/hex"
	"os"
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

// FuzzReplay: whatever a firmware's log is, it is refused or gives the registers that were quoted.
func FuzzReplay(f *testing.F) {
	log, err := os.ReadFile("testdata/ovmf.log")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(log)
	f.Add([]byte{})
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
