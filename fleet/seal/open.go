// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"filippo.io/age/agessh"
	"filippo.io/age/armor"
	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/program"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site"
)

// Identities are keys that open a site's files with secrets.
type Identities struct{ list []age.Identity }

// Add reads the keys of one file, as age-keygen(1) or ssh-keygen(1) writes it; name is what errors
// call it.
func (i *Identities) Add(name string, text []byte) error {
	if block, _ := pem.Decode(text); block != nil && strings.HasSuffix(block.Type, "PRIVATE KEY") {
		key, err := agessh.ParseIdentity(text)
		var locked *ssh.PassphraseMissingError
		switch {
		case errors.As(err, &locked):
			return cli.WithHint(fmt.Errorf("read identity %s: it is an SSH key with a passphrase", name),
				"ssh-keygen -p takes it off a copy; or have secrets be printed by command: [age, -d, -i, "+name+", FILE], which asks for it")
		case err != nil:
			return cli.WithHint(fmt.Errorf("read identity %s: it is not an SSH key that age opens files with", name), "it takes ed25519 and RSA")
		}
		i.list = append(i.list, key)
		return nil
	}
	if isAge(text) {
		return cli.WithHint(fmt.Errorf("read identity %s: its key has a passphrase", name), "age -d -o KEY "+name+" writes the key that it holds")
	}
	found, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		return cli.WithHint(fmt.Errorf("read identity %s: it holds no key of age", name),
			"age-keygen -o FILE makes one; SSH keys do as well") // age's own error would quote the line
	}
	i.list = append(i.list, found...)
	return nil
}

func (i *Identities) open(s site.Secret) ([]byte, error) {
	in := reader(s.Data)
	var wrong *age.NoIdentityMatchError
	out, err := age.Decrypt(in, i.list...)
	if errors.As(err, &wrong) {
		return nil, cli.WithHint(fmt.Errorf("open %s: no key of --identity decrypts it", s.File), "age -d -i FILE "+s.File+
			" shows whether another key opens it")
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.File, err)
	}
	value, err := io.ReadAll(io.LimitReader(out, rules.MaxSecret+1))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.File, err)
	}
	return value, size(value)
}

// isAge reports whether a text is encrypted by age.
func isAge(text []byte) bool {
	head := make([]byte, len(ageFile))
	_, err := io.ReadFull(reader(text), head)
	return err == nil && string(head) == ageFile
}

const ageFile = "age-encryption.org/v1\n"

// reader reads what age wrote, in armour or not.
func reader(data []byte) io.Reader {
	if text := bytes.TrimLeft(data, " \t\r\n"); bytes.HasPrefix(text, []byte(armor.Header)) {
		return armor.NewReader(bytes.NewReader(text))
	}
	return bytes.NewReader(data)
}

// size refuses values that no node is given.
func size(value []byte) error {
	switch {
	case len(value) > rules.MaxSecret:
		return fmt.Errorf("its value has more than %d KiB", rules.MaxSecret>>10)
	case len(value) == 0:
		return errors.New("its value is empty")
	}
	return nil
}

// run has a program print a value. What it says beside that goes to the operator.
func run(ctx context.Context, argv []string, dir string, limit time.Duration) ([]byte, error) {
	late := fmt.Errorf("no value within %v", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	value, err := program.Run(ctx, program.Command{Argv: argv, Dir: dir, Most: rules.MaxSecret + 1})
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("run %s: %w", argv[0], err),
			"its standard error is above, where it has any; run it in "+cmp.Or(dir, ".")+" without caisson")
	}
	return value, size(value)
}

// encrypt seals a value to a recipient.
func encrypt(to string, value []byte) (string, error) {
	r, err := age.ParseX25519Recipient(to)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, r)
	if err != nil {
		return "", err
	}
	_, err = w.Write(value)
	if err = errors.Join(err, w.Close()); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(out.Bytes()), nil
}

// keyName is the file of the key by which values are compared.
const keyName = "secrets.key"

// macKey tells whether a value is another one, to its holders alone: a plain
// digest of a short password would give it away.
type macKey struct {
	name string
	key  []byte
}

// anotherKey says what to do where the key is not the one that the lock was made with.
const anotherKey = "take the key from where the site was published last, or remove " + lockName +
	": all secrets are re-encrypted then, and their nodes get a new generation"

// openKey reads the key, and makes it where there is none and none was needed before.
func openKey(name string, needed bool) (*macKey, error) {
	text, err := ownfiles.ReadLinked(name)
	if errors.Is(err, fs.ErrNotExist) {
		if needed {
			return nil, cli.WithHint(fmt.Errorf("%s is not there, and %s was made with it", name, lockName), anotherKey)
		}
		key := make([]byte, sha256.Size)
		rand.Read(key)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return nil, err
		}
		if err := durable.WriteFile(name, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
			return nil, err
		}
		return &macKey{name, key}, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != sha256.Size {
		return nil, fmt.Errorf("read %s: it is not a key of %d bytes in base64", name, sha256.Size)
	}
	return &macKey{name, key}, nil
}

func (k *macKey) of(name string, value []byte) string {
	h := hmac.New(sha256.New, k.key)
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(name)))
	h.Write(n[:])
	h.Write([]byte(name))
	h.Write(value)
	return hex.EncodeToString(h.Sum(nil))
}

// bound is the HMAC of a row, but for that itself: who writes the lock and does not have the key
// puts nothing of his own in it. No secret has the name "", so it is not the HMAC of a value.
func (k *macKey) bound(r Row) string {
	r.Bound = ""
	text, _ := json.Marshal(r) // all of it are texts
	return k.of("", text)
}

// id names the key without giving it away.
func (k *macKey) id() string { return k.of("", []byte("the key of "+lockName))[:16] }

// form refuses a value that a node could do nothing with. Its errors do not contain it.
type form func(value []byte) error

// formsOf notes which secrets of an overlay have a form, by name.
func formsOf(o *spec.Overlay, forms map[string]form) {
	for _, p := range o.Items.Passwords {
		forms[p.Secret] = isHash
	}
	if o.Agent == nil || o.Agent.Credentials == nil {
		return
	}
	if name := o.Agent.Credentials.Registry; name != "" {
		forms[name] = isLogin
	}
	if name := o.Agent.Credentials.Report; name != "" && o.Agent.Report != nil && o.Agent.Report.Registry != "" {
		forms[name] = isLogin
	}
}

// isHash refuses a password that nobody could log in with.
func isHash(value []byte) error {
	if problem, _ := rules.HashProblem(strings.TrimSuffix(string(value), "\n")); problem != "" {
		return cli.WithHint(errors.New("it is the password of an account, and its value is not a crypt(5) hash"),
			"mkpasswd --method=yescrypt prints one")
	}
	return nil
}

// isLogin refuses what does not log in to any registry.
func isLogin(value []byte) error {
	var file struct {
		Auths map[string]struct{} `json:"auths"`
	}
	if json.Unmarshal(value, &file) != nil || len(file.Auths) == 0 {
		return cli.WithHint(errors.New("it logs in to a registry, and its value is not in the form of docker's config.json"),
			`as in {"auths":{"registry.example.org":{"auth":"BASE64 OF USER:PASSWORD"}}}`)
	}
	return nil
}

// Apart has a site's overlays hold the secrets of one node, sealed to a key that is made for
// it: for a machine that is thrown away. Nothing beside the site is read or written. With
// madeUp nothing is opened either, and values are made up. It returns the key, as the node
// keeps it.
func Apart(s *site.Site, node string, madeUp bool) (x *Sealer, key string, err error) {
	made, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, "", err
	}
	x = &Sealer{site: s, Must: true, Commands: true, Timeout: time.Minute, madeUp: madeUp, values: map[string][]byte{},
		lock: &Lock{rows: map[rowKey]Row{}}, key: &macKey{key: make([]byte, sha256.Size)},
		recipients: &Recipients{Nodes: map[string]Accepted{node: {Node: node, Recipient: made.Recipient().String()}}}}
	rand.Read(x.key.key) // never fails, see crypto/rand
	s.SealWith(x.of)
	return x, made.String() + "\n", nil
}

// makeUp returns a value of a form, or of none, that says what it is.
func makeUp(name string, is form) []byte {
	for _, value := range []string{"made-up-" + name, "!", `{"auths":{"registry.invalid":{"auth":"bWFkZTp1cA=="}}}`} {
		if is == nil || is([]byte(value)) == nil {
			return []byte(value)
		}
	}
	return nil // there is a value of each form, see TestApart
}
