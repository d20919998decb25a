// SPDX-License-Identifier: Apache-2.0

package tpmtest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// event is one of a firmware's log.
type event struct {
	register uint32
	data     string
}

// usual is what firmware measures of a machine that starts the loader "loader".
var usual = []event{{0, "firmware"}, {2, "card"}, {4, "manager"}, {4, "program"}, {7, "keys"}, {11, "loader"}}

var nonce = bytes.Repeat([]byte{7}, spec.MinNonce)

// events are what a loader and its node measure.
var events = []spec.Measured{
	{Event: spec.MeasuredKexec, Layer: "sha256:l", Core: "sha256:c", Kernel: "sha256:k", Initrd: "sha256:i", Line: "quiet"},
	{Event: spec.MeasuredStack, Layer: "sha256:l", Core: "sha256:c"},
	{Event: spec.MeasuredSoftReboot, Layer: "sha256:m", Core: "sha256:d"},
}

// known is what an operator knows of such a machine, but for its key.
func known() attest.Known {
	return attest.Known{Node: "n", Loaders: map[attest.Register]string{spec.Extend([32]byte{}, sha256.Sum256([]byte("loader"))): "loader.efi"},
		Roots: map[attest.Root]attest.Layer{{Layer: "sha256:l", Core: "sha256:c"}: {Kernel: "sha256:k", Initrd: "sha256:i"}, {Layer: "sha256:m", Core: "sha256:d"}: {}}}
}

// machine is one with a TPM, whose firmware has measured its events.
func machine(t *testing.T, open func() (io.ReadWriteCloser, error), firmware []event) *tpm.Log {
	t.Helper()
	l := tpm.LogOf(t.TempDir(), func(format string, args ...any) { t.Errorf(format, args...) })
	l.TPM = tpm.TPM{Open: open, Limit: time.Minute}
	le := binary.LittleEndian
	log := slices.Concat(le.AppendUint32(le.AppendUint32(nil, 0), 3), make([]byte, 20), le.AppendUint32(nil, 33), []byte("Spec ID Event03\x00"),
		[]byte{0, 0, 0, 0, 0, 2, 0, 2, 1, 0, 0, 0, 0x0b, 0, 32, 0, 0})
	for _, e := range firmware {
		d := sha256.Sum256([]byte(e.data))
		if err := l.TPM.Extend(e.register, d); err != nil {
			t.Fatal(err)
		}
		for _, n := range []uint32{e.register, 0xd, 1} {
			log = le.AppendUint32(log, n)
		}
		log = append(le.AppendUint16(log, 0x0b), d[:]...)
		log = append(le.AppendUint32(log, uint32(len(e.data))), e.data...)
	}
	if err := os.MkdirAll(filepath.Dir(l.Firmware), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.Firmware, log, 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// quoted measures events and asks for a quote.
func quoted(t *testing.T, l *tpm.Log, events ...spec.Measured) *spec.Quote {
	t.Helper()
	for _, m := range events {
		l.Add(m)
	}
	q, err := l.Quote(nonce)
	if err != nil {
		t.Fatal(err)
	}
	data, err := spec.Encode(q)
	if err != nil {
		t.Fatal(err)
	}
	if q, err = spec.DecodeQuote(data); err != nil {
		t.Fatal(err)
	}
	return q
}

func accepted(t *testing.T, q *spec.Quote) []view.Machine {
	t.Helper()
	m, err := known().Accept(q)
	if err != nil {
		t.Fatal(err)
	}
	return []view.Machine{m}
}

// TestAttested: what was measured is attested, after systemd's phases, too; and after a restart
// the machine has the same key.
func TestAttested(t *testing.T) {
	l := machine(t, Start(t), usual)
	k := known()
	k.Like = accepted(t, quoted(t, l))
	v := attest.Verify(quoted(t, l, events...), nonce, k)
	if !v.Attested || v.Why != "" || v.Loader != "loader.efi" || len(v.Events) != 3 || len(v.Registers) != 8 {
		t.Fatalf("%+v", v)
	}
	for _, phase := range []string{"sysinit", "ready", "shutdown", "final", "sysinit"} {
		if err := l.TPM.Extend(11, sha256.Sum256([]byte(phase))); err != nil {
			t.Fatal(err)
		}
		if v := attest.Verify(quoted(t, l), nonce, k); !v.Attested {
			t.Errorf("after %s: %s", phase, v.Why)
		}
	}
}

// TestNotAttested: each attack on one machine's quote, and what is said of it.
func TestNotAttested(t *testing.T) {
	l := machine(t, Start(t), usual)
	fresh := quoted(t, l)
	whole := quoted(t, l, events...)
	other := quoted(t, machine(t, Start(t), usual), events...)
	k := known()
	k.Like = accepted(t, fresh)
	runs := func(overlay, layer string) func(*spec.Quote, *attest.Known) {
		return func(_ *spec.Quote, k *attest.Known) {
			at := attest.Root{Layer: "sha256:m", Core: "sha256:d"}
			k.Roots[at] = attest.Layer{Overlays: []string{"sha256:o"}}
			k.Runs = &attest.Running{Overlay: overlay, Layer: layer}
		}
	}
	lie := func(from, to string) func(*spec.Quote, *attest.Known) {
		return func(q *spec.Quote, _ *attest.Known) { q.Log = strings.Replace(q.Log, from, to, 1) }
	}
	for name, row := range map[string]struct {
		attack func(*spec.Quote, *attest.Known)
		why    string
	}{
		"the log names another layer": {lie("sha256:m", "sha256:l"), "the log of what was measured is not what register 14 has"},
		"the log lacks a line":        {func(q *spec.Quote, _ *attest.Known) { q.Log = q.Log[strings.Index(q.Log, "\n")+1:] }, "the log of what was measured is not"},
		"the log has none":            {func(q *spec.Quote, _ *attest.Known) { q.Log = "" }, "the log of what was measured is not"},
		"the log is another document": {lie(`"event"`, `"Event"`), "read the log of what was measured: line 1"},
		"the firmware's log lies": {func(q *spec.Quote, _ *attest.Known) {
			q.Firmware = bytes.Replace(q.Firmware, []byte("\x02\x00\x00\x00\x0d"), []byte("\x03\x00\x00\x00\x0d"), 1)
		}, "the firmware's log is not what register 2 has"},
		"the firmware's log is gone":   {func(q *spec.Quote, _ *attest.Known) { q.Firmware = nil }, "the firmware's log is not what register 11 has"},
		"the firmware's log is cut":    {func(q *spec.Quote, _ *attest.Known) { q.Firmware = q.Firmware[:len(q.Firmware)-3] }, "the firmware's log: "},
		"a register is another one":    {func(q *spec.Quote, _ *attest.Known) { q.Registers[4] = make([]byte, 32) }, "the registers are not those that were signed"},
		"registers that are not whole": {func(q *spec.Quote, _ *attest.Known) { q.Registers[4] = q.Registers[4][:31] }, "the registers are not whole"},
		"the answer to another nonce":  {func(q *spec.Quote, k *attest.Known) { *q = *quotedWith(t, l, bytes.Repeat([]byte{8}, 16)) }, "it is the answer to another nonce"},
		"the signature is another's":   {func(q *spec.Quote, _ *attest.Known) { q.Signature = other.Signature }, "the signature does not hold"},
		"another machine":              {func(q *spec.Quote, _ *attest.Known) { *q = *other }, "nobody has accepted the machine's key sha256:"},
		"a machine that is new":        {func(_ *spec.Quote, k *attest.Known) { k.Like = nil }, "nobody has accepted the machine's key sha256:"},
		"a loader of nobody":           {func(_ *spec.Quote, k *attest.Known) { k.Loaders = nil }, "unknown event: a loader of which register 11 is "},
		"a root of nobody": {func(_ *spec.Quote, k *attest.Known) {
			delete(k.Roots, attest.Root{Layer: "sha256:m", Core: "sha256:d"})
		}, "unknown event: soft-reboot: this node was not given the core sha256:d"},
		"a kernel of nobody": {func(_ *spec.Quote, k *attest.Known) {
			k.Roots[attest.Root{Layer: "sha256:l", Core: "sha256:c"}] = attest.Layer{Kernel: "x"}
		}, "unknown event: kexec: kernel sha256:k is not"},
		"an initrd of nobody": {func(_ *spec.Quote, k *attest.Known) {
			k.Roots[attest.Root{Layer: "sha256:l", Core: "sha256:c"}] = attest.Layer{Kernel: "sha256:k"}
		}, "unknown event: kexec: initrd sha256:i is not"},
		"it reports another overlay": {runs("sha256:x", "sha256:m"), "it reports overlay sha256:x on layer sha256:m, and its root is of core sha256:d"},
		"it reports another layer":   {runs("sha256:o", "sha256:l"), "it reports overlay sha256:o on layer sha256:l, and its root is of core sha256:d"},
		"the firmware's log has SHA-1 alone": {func(q *spec.Quote, _ *attest.Known) {
			q.Firmware = slices.Concat(q.Firmware[:60], []byte{4, 0, 20, 0, 0}, []byte{0, 0, 0, 0, 0xd, 0, 0, 0, 1, 0, 0, 0, 4, 0}, make([]byte, 20), []byte{1, 0, 0, 0, 'x'})
		}, "the firmware's log: an event of register 0 has no SHA-256"},
		"before the loader": {func(q *spec.Quote, _ *attest.Known) { *q = *fresh }, "nothing was measured of what the loader went on with"},
	} {
		t.Run(name, func(t *testing.T) {
			q, k := *whole, known()
			q.Registers, k.Like = slices.Clone(q.Registers), accepted(t, fresh)
			row.attack(&q, &k)
			if v := attest.Verify(&q, nonce, k); v.Attested || !strings.HasPrefix(v.Why, row.why) {
				t.Errorf("%v, %s", v.Attested, v.Why)
			}
		})
	}
	runs("sha256:o", "sha256:m")(whole, &k)
	if v := attest.Verify(whole, nonce, k); !v.Attested {
		t.Errorf("without any attack: %s", v.Why)
	}
}

// TestASignatureOfNoQuote: a key that was accepted counts for what a TPM signs by a key that it keeps, and nothing else:
// here the key is a program's, so that it signs whatever is wanted.
func TestASignatureOfNoQuote(t *testing.T) {
	whole := quoted(t, machine(t, Start(t), usual), events...)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	number := func(n *big.Int) tpm2.TPM2BECCParameter {
		return tpm2.TPM2BECCParameter{Buffer: n.FillBytes(make([]byte, 32))}
	}
	quotes := func(change func(*tpm2.TPMSQuoteInfo)) func(*tpm2.TPMTPublic, *tpm2.TPMSAttest) {
		return func(_ *tpm2.TPMTPublic, said *tpm2.TPMSAttest) {
			q, err := said.Attested.Quote()
			if err != nil {
				t.Fatal(err)
			}
			change(q)
			said.Attested = tpm2.NewTPMUAttest(tpm2.TPMSTAttestQuote, q)
		}
	}
	lacks := func(change func(*tpm2.TPMAObject)) func(*tpm2.TPMTPublic, *tpm2.TPMSAttest) {
		return func(public *tpm2.TPMTPublic, _ *tpm2.TPMSAttest) { change(&public.ObjectAttributes) }
	}
	const anything = "the machine's key may sign what the TPM has not said"
	for name, row := range map[string]struct {
		change func(*tpm2.TPMTPublic, *tpm2.TPMSAttest)
		why    string
	}{
		"nothing is changed":       {quotes(func(*tpm2.TPMSQuoteInfo) {}), ""},
		"a key that moves":         {lacks(func(a *tpm2.TPMAObject) { a.FixedTPM = false }), anything},
		"a key below another":      {lacks(func(a *tpm2.TPMAObject) { a.FixedParent = false }), anything},
		"a key from elsewhere":     {lacks(func(a *tpm2.TPMAObject) { a.SensitiveDataOrigin = false }), anything},
		"a key for anything":       {lacks(func(a *tpm2.TPMAObject) { a.Restricted = false }), anything},
		"a key that does not sign": {lacks(func(a *tpm2.TPMAObject) { a.SignEncrypt = false }), anything},
		"a key that opens":         {lacks(func(a *tpm2.TPMAObject) { a.Decrypt = true }), anything},
		"data that looks so":       {func(_ *tpm2.TPMTPublic, said *tpm2.TPMSAttest) { said.Magic ^= 1 }, "what is signed was not said by a TPM"},
		"the time": {func(_ *tpm2.TPMTPublic, said *tpm2.TPMSAttest) {
			said.Type, said.Attested = tpm2.TPMSTAttestTime, tpm2.NewTPMUAttest(tpm2.TPMSTAttestTime, &tpm2.TPMSTimeAttestInfo{})
		}, "what is signed is not a quote"},
		"registers that everybody resets": {quotes(func(q *tpm2.TPMSQuoteInfo) {
			q.PCRSelect.PCRSelections[0].PCRSelect = tpm2.PCClientCompatible.PCRs(append(slices.Clone(spec.Quoted[1:]), 16)...)
		}), "other registers are quoted"},
		"registers of another hash": {quotes(func(q *tpm2.TPMSQuoteInfo) { q.PCRSelect.PCRSelections[0].Hash = tpm2.TPMAlgSHA1 }), "other registers are quoted"},
		"more registers": {quotes(func(q *tpm2.TPMSQuoteInfo) {
			q.PCRSelect.PCRSelections = append(q.PCRSelect.PCRSelections, q.PCRSelect.PCRSelections[0])
		}), "other registers are quoted"},
	} {
		public, err := tpm2.Unmarshal[tpm2.TPMTPublic](whole.Key)
		if err != nil {
			t.Fatal(err)
		}
		public.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{X: number(key.X), Y: number(key.Y)})
		said, err := tpm2.Unmarshal[tpm2.TPMSAttest](whole.Attest)
		if err != nil {
			t.Fatal(err)
		}
		row.change(public, said)
		q := *whole
		q.Key, q.Attest = tpm2.Marshal(public), tpm2.Marshal(said)
		sum := sha256.Sum256(q.Attest)
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		q.Signature = tpm2.Marshal(tpm2.TPMTSignature{SigAlg: tpm2.TPMAlgECDSA, Signature: tpm2.NewTPMUSignature(tpm2.TPMAlgECDSA,
			&tpm2.TPMSSignatureECC{Hash: tpm2.TPMAlgSHA256, SignatureR: number(r), SignatureS: number(s)})})
		k := known()
		k.Like = accepted(t, whole)
		k.Like[0].Key = digest.Of(q.Key)
		if v := attest.Verify(&q, nonce, k); v.Attested != (row.why == "") || !strings.HasPrefix(v.Why, row.why) {
			t.Errorf("%s: %v, %s", name, v.Attested, v.Why)
		}
	}
}

func quotedWith(t *testing.T, l *tpm.Log, other []byte) *spec.Quote {
	t.Helper()
	q, err := l.Quote(other)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestBootsThatAreNotAttested: what other boots of the same machine leave behind.
func TestBootsThatAreNotAttested(t *testing.T) {
	without := func(register uint32) []event {
		return slices.DeleteFunc(slices.Clone(usual), func(e event) bool { return e.register == register })
	}
	played, err := spec.Encode(events[1]) // as a loader would have measured it
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		firmware []event
		events   []spec.Measured
		like     []event // what was accepted
		why      string
	}{
		"by iPXE":                        {without(11), events, nil, "kernel not measured by a UKI"},
		"another loader":                 {append(without(11), event{11, "other"}), events, nil, "unknown event: a loader of which"},
		"arguments beside the loader":    {append(slices.Clone(usual), event{12, "init=/bin/sh"}), events, nil, "unknown event: register 12 has arguments"},
		"our register before the loader": {append(slices.Clone(usual), event{spec.PCR, string(played)}), events, nil, "unknown event: something extended register 14"},
		"a program that plays the stub":  {append(slices.Clone(usual), event{4, "player"}), events, usual, "unknown event: what the firmware started, of register 4"},
		"a kernel that goes no further":  {usual, events[:1], nil, "nothing was measured of the root"},
		"an event that is not known":     {usual, []spec.Measured{{Event: "other", Layer: "sha256:l", Core: "sha256:c"}}, nil, `unknown event: "other"`},
	} {
		t.Run(name, func(t *testing.T) {
			l := machine(t, Start(t), row.firmware)
			q := quoted(t, l, row.events...)
			if slices.Contains(row.firmware, event{spec.PCR, string(played)}) {
				q.Log = string(played) + "\n" + q.Log
			}
			k := known()
			if m, err := k.Accept(q); err == nil {
				k.Like = []view.Machine{m}
			}
			if row.like != nil { // the same key would be of the same TPM, before: its registers alone differ
				k.Like[0].Code[2] = bytes.Repeat([]byte{1}, 32)
			}
			if v := attest.Verify(q, nonce, k); v.Attested || !strings.HasPrefix(v.Why, row.why) {
				t.Errorf("%v, %s", v.Attested, v.Why)
			}
		})
	}
}
