// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"bytes"
	"crypto"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
)

// counting is a signer that is not a key of this process.
type counting struct {
	crypto.Signer
	calls int
	fails error
}

func (c *counting) Sign(random io.Reader, sum []byte, opts crypto.SignerOpts) ([]byte, error) {
	c.calls++
	if c.fails != nil {
		return nil, c.fails
	}
	return c.Signer.Sign(random, sum, opts)
}

// TestOnce: one signature, as often as it is asked for, and of nothing else.
func TestOnce(t *testing.T) {
	key, digest, now := mustGenerate(t), oci.Digest([]byte("overlay")), time.Now()
	said := Predicate{Fleet: "f", Node: "n", Generation: 1, IssuedAt: now, Expires: now.Add(time.Hour)}
	device := &counting{Signer: key, fails: errors.New("no touch")}
	once := &Once{By: device}
	if _, err := SignOverlay(once, digest, said); !errors.Is(err, device.fails) {
		t.Errorf("of a signer that fails: %v", err)
	}
	device.fails = nil
	for what, once := range map[string]*Once{"a device": once, "a key": {By: key}} {
		first, err := SignOverlay(once, digest, said)
		if err != nil {
			t.Fatal(what, err)
		}
		again, err := SignOverlay(once, digest, said)
		if err != nil || !bytes.Equal(first, again) {
			t.Errorf("%s gives another bundle: %v", what, err)
		}
		if _, err := VerifyOverlay([][]byte{again}, []Verifier{VerifierOf(key)}, 1, digest); err != nil {
			t.Error(what, err)
		}
		other := said
		other.Generation = 2
		for _, digest := range []string{digest, oci.Digest(nil)} {
			if _, err := SignOverlay(once, digest, other); err == nil {
				t.Errorf("%s signs again, and something else", what)
			}
			other = said
		}
	}
	if device.calls != 2 {
		t.Errorf("the device was asked %d times", device.calls)
	}
	liar := &counting{Signer: key}
	if _, err := SignOverlay(&Once{By: lying{liar, mustGenerate(t).Public()}}, digest, said); err == nil {
		t.Error("a signer with another key than it says is taken")
	}
}

// lying says that it has another key.
type lying struct {
	crypto.Signer
	public crypto.PublicKey
}

func (l lying) Public() crypto.PublicKey { return l.public }
