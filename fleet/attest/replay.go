// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-eventlog/register"
	"github.com/google/go-eventlog/tcg"
	"github.com/google/go-tpm/tpm2"

	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

const (
	stubRegister = 11 // into which systemd's stub measures the sections of its image
	manager      = 4  // into which firmware measures each program that it starts: boot manager, loader, kernel
)

// begun holds what firmware and stub measured before a kernel ran.
type begun struct {
	stub   Register   // in stubRegister
	others Register   // what would be in manager without the programs of known loaders
	passed []Register // these programs
}

// replay holds the firmware's log against the registers. Those of the stub and of caisson go on
// to change, and are held by what follows. A machine without such a log has nothing in either.
func replay(log []byte, registers map[uint]Register, programs map[Register]bool) (begun, error) {
	b := begun{others: registers[manager]}
	left := map[int]Register{}
	if len(log) > 0 {
		if err := checkHashes(log); err != nil {
			return begun{}, err
		}
		parsed, err := tcg.ParseEventLog(log, tcg.ParseOpts{AllowPadding: true})
		if err != nil {
			return begun{}, fmt.Errorf("the firmware's log: %w", err)
		}
		events := parsed.Events(register.HashSHA256)
		if left, err = fold(events); err != nil {
			return begun{}, err
		}
		others := slices.DeleteFunc(events, func(e tcg.Event) bool {
			known := e.Index == manager && len(e.Digest) == sha256.Size && programs[Register(e.Digest)]
			if known {
				b.passed = append(b.passed, Register(e.Digest))
			}
			return known
		})
		without, err := fold(others)
		if err != nil {
			return begun{}, err
		}
		b.others = without[manager]
	}
	for _, r := range spec.Quoted {
		switch r {
		case stubRegister, spec.PCR:
		case 12, 13:
			if registers[r] != (Register{}) {
				return begun{}, fmt.Errorf("unknown event: register %d has arguments, credentials or extensions that came beside the loader", r)
			}
		default:
			if len(log) > 0 && registers[r] != left[int(r)] {
				return begun{}, fmt.Errorf("the firmware's log is not what register %d has", r)
			}
		}
	}
	if own := left[spec.PCR]; own != (Register{}) {
		return begun{}, fmt.Errorf("unknown event: something extended register %d before the loader", spec.PCR)
	}
	b.stub = left[stubRegister]
	if !goesOn(b.stub, registers[stubRegister]) {
		return begun{}, fmt.Errorf("the firmware's log is not what register %d has", stubRegister)
	}
	return b, nil
}

// checkHashes refuses a log whose first event lists hashes that no TPM has: the parser makes room for each one
// that is listed under a digest's number, at each digest.
func checkHashes(log []byte) error {
	const most, largest, signature = 8, 64, "Spec ID Event03\x00"
	if len(log) < 60 || string(log[32:48]) != signature {
		return nil // it lists none
	}
	count := binary.LittleEndian.Uint32(log[56:])
	if count > most {
		return fmt.Errorf("the firmware's log lists %d hashes, %d are the most", count, most)
	}
	listed := map[uint16]bool{}
	for h := log[60:]; count > 0 && len(h) >= 4; count, h = count-1, h[4:] { // of a list that is cut the parser says so
		id, size := binary.LittleEndian.Uint16(h), binary.LittleEndian.Uint16(h[2:])
		if listed[id] {
			return fmt.Errorf("the firmware's log lists hash %#04x twice", id)
		}
		if size > largest {
			return fmt.Errorf("the firmware's log lists hash %#04x with %d bytes, %d are the most", id, size, largest)
		}
		listed[id] = true
	}
	return nil
}

// fold returns what the events of a log leave in each register.
func fold(events []tcg.Event) (map[int]Register, error) {
	const noAction, locality = 3, "StartupLocality"
	left := map[int]Register{}
	for _, e := range events {
		if e.Type == noAction { // extends nothing
			if e.Index == 0 && len(e.Data) == len(locality)+2 && string(e.Data[:len(locality)]) == locality && left[0] == (Register{}) {
				left[0] = Register{sha256.Size - 1: e.Data[len(locality)+1]}
			}
			continue
		}
		if len(e.Digest) != sha256.Size {
			return nil, fmt.Errorf("the firmware's log: an event of register %d has no SHA-256", e.Index)
		}
		left[e.Index] = spec.Extend(left[e.Index], Register(e.Digest))
	}
	return left, nil
}

// phases are the words that systemd extends into the stub's register while a node runs, in a circle, from
// soft-reboot to soft-reboot: see systemd-pcrphase.service(8).
var phases = [...]string{"sysinit", "ready", "shutdown", "final"}

// mostPhases bounds how often a node goes on without a boot.
const mostPhases = 4096

// goesOn reports whether a register became another one by systemd's phases alone.
func goesOn(from, to Register) bool {
	for i := range mostPhases {
		if from == to {
			return true
		}
		from = spec.Extend(from, sha256.Sum256([]byte(phases[i%len(phases)])))
	}
	return false
}

// Given returns what a node may have entered: the core of each of its overlays that is kept, on
// each of its layers, since a node goes on with a newer overlay on the layer before. What only
// keys signed that count no more is not among them.
func Given(ctx context.Context, f *published.Fleet, node string) (map[Root]Layer, error) {
	list, err := history.List(ctx, f, node, nil)
	if err != nil {
		return nil, err
	}
	overlays, layers := map[string]*spec.Overlay{}, map[string]Layer{}
	for _, e := range list {
		if e.Mark != "" || e.Refused != "" || e.Node == nil || e.Node.Overlay == "" {
			continue
		}
		o, err := f.Content(ctx, node, e.Node.Content)
		if err != nil {
			return nil, err
		}
		overlays[e.Node.Overlay] = o
		if o.Layer == "" { // of a host that caisson did not boot
			continue
		}
		if _, read := layers[o.Layer]; !read {
			l, err := f.Layer(ctx, o.Layer)
			if err != nil {
				return nil, fmt.Errorf("layer %s: %w", o.Layer, err)
			}
			layers[o.Layer] = Layer{Kernel: l.Kernel.Digest, Initrd: l.Initrd.Digest}
		}
	}
	roots := map[Root]Layer{}
	for overlay, o := range overlays {
		for name, layer := range layers {
			core, err := spec.RootID(o, name)
			if err != nil {
				return nil, err
			}
			at := Root{name, core}
			layer.Overlays = append(roots[at].Overlays, overlay) // an overlay that differs in what is live has the same core
			roots[at] = layer
		}
	}
	return roots, nil
}

// endorsement reads an endorsement key, and refuses what no profile of TCG's has: what it is used for,
// and how it is protected, is then known of the TPM that has it.
func endorsement(ek []byte) (*tpm2.TPMTPublic, error) {
	public, err := tpm2.Unmarshal[tpm2.TPMTPublic](ek)
	if err != nil {
		return nil, fmt.Errorf("the endorsement key: %w", err)
	}
	for _, template := range []tpm2.TPMTPublic{tpm2.ECCEKTemplate, tpm2.RSAEKTemplate} {
		if template.Unique = public.Unique; public.Type == template.Type && bytes.Equal(tpm2.Marshal(template), ek) {
			return public, nil
		}
	}
	return nil, errors.New("the endorsement key is of no known profile")
}

// sealNonce seals a nonce for the TPM that has an endorsement key and the key of a digest.
func sealNonce(ek []byte, key string, nonce []byte) (string, error) {
	public, err := endorsement(ek)
	if err != nil {
		return "", err
	}
	to, err := tpm2.ImportEncapsulationKey(public)
	if err != nil {
		return "", fmt.Errorf("the endorsement key: %w", err)
	}
	sum, err := hex.DecodeString(digest.Hex(key)) // of a TPMT_PUBLIC, so with the hash's number it is a name
	if err != nil {
		return "", err
	}
	credential, secret, err := tpm2.CreateCredential(rand.Reader, to,
		append(binary.BigEndian.AppendUint16(nil, uint16(tpm2.TPMAlgSHA256)), sum...), nonce)
	if err != nil {
		return "", fmt.Errorf("seal to the endorsement key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(credential) + " " + base64.StdEncoding.EncodeToString(secret), nil
}

// boundTo returns the endorsement key that a key of quotes was bound to last.
func boundTo(q *view.Quote, key string) []byte {
	if q == nil {
		return nil
	}
	for _, m := range []*view.Machine{q.Accepted, q.Seen} {
		if m != nil && m.Key == key && len(m.EK) > 0 {
			return m.EK
		}
	}
	return nil
}

// isLike reports whether two quotes are of one machine, as far as its keys say.
func isLike(m, accepted view.Machine) bool {
	if len(accepted.EK) > 0 {
		return bytes.Equal(m.EK, accepted.EK)
	}
	return m.Key == accepted.Key
}

// certify takes what a machine showed first as accepted, where an authority has certified its
// TPM. Its loader has to be known all the same.
func (d *Desk) certify(known *Known, q *spec.Quote) error {
	if d.Authorities == nil {
		return nil
	}
	if err := certified(q.EKCertificate, known.EK, d.Authorities, d.Now()); err != nil {
		return err
	}
	m, err := known.Accept(q)
	if err == nil {
		known.Like = append(known.Like, m)
	}
	return err
}

// certified holds that an authority has certified an endorsement key.
func certified(der, ek []byte, by *x509.CertPool, now time.Time) error {
	if len(der) == 0 || len(ek) == 0 {
		return errors.New("its TPM shows no certificate")
	}
	var whole asn1.RawValue // NV may have padding behind it
	if _, err := asn1.Unmarshal(der, &whole); err != nil {
		return fmt.Errorf("the certificate of its TPM: %w", err)
	}
	c, err := x509.ParseCertificate(whole.FullBytes)
	if err != nil {
		return fmt.Errorf("the certificate of its TPM: %w", err)
	}
	public, err := endorsement(ek)
	if err != nil {
		return err
	}
	key, err := tpm2.Pub(*public)
	if err != nil {
		return fmt.Errorf("the endorsement key: %w", err)
	}
	if k, ok := key.(interface{ Equal(crypto.PublicKey) bool }); !ok || !k.Equal(c.PublicKey) {
		return errors.New("the certificate of its TPM is of another key")
	}
	// The TPM's model is in a name of its subject that is critical, and that package x509 does not read.
	c.UnhandledCriticalExtensions = slices.DeleteFunc(c.UnhandledCriticalExtensions, asn1.ObjectIdentifier{2, 5, 29, 17}.Equal)
	if _, err := c.Verify(x509.VerifyOptions{Roots: by, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return fmt.Errorf("the certificate of its TPM: %w", err)
	}
	return nil
}
