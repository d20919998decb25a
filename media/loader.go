// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/cms"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/media/format"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// Source says what a loader is made of.
type Source struct {
	Layer     release.Layer   // whose kernel and initrd load
	Bootstrap spec.Bootstrap  // whom the nodes trust
	Node      string          // the one node that it is for; empty: the machine says who it is
	Args      []string        // further arguments of the loader's kernel
	Key       builder.BootKey // signs what firmware starts, and which loaders open what is sealed to TPMs; nil signs nothing
	Former    []crypto.Signer // the loader opens what nodes have sealed to these, too
}

// Signed has the loader open, too, what nodes sealed to keys that signed loaders before, by their names.
func (s *Source) Signed(before []string, pass *keys.Passphrase) error {
	for _, name := range before {
		file := name
		if keys.IsFile(name) {
			file = keys.PairName(name) + ".key"
		}
		key, err := keys.BootSigner(file, pass)
		if err != nil {
			return cli.Absent(fmt.Errorf("--boot-key-before %s: %w", name, err), "it takes the key that signed loaders "+
				"until now: NAME of NAME.key, env:NAME, fd:N or command:CMD")
		}
		if s.Key == nil || s.Key.Certificate().PublicKey.(*rsa.PublicKey).Equal(key.Public()) {
			return cli.Usage("--boot-key names the key that takes its place", "--boot-key-before %s: no other key signs this loader", name)
		}
		s.Former = append(s.Former, key)
	}
	return nil
}

// Loader is a unified kernel image, and what firmware chooses it by.
type Loader struct {
	Image   []byte // the program: stub, command line, kernel, initrd with site.cpio
	Manager []byte // systemd-boot
	Arch    string // Debian's name
	Number  int64  // IMAGE_VERSION: boot managers take the highest
	Date    time.Time

	sign    builder.Signs
	approve []crypto.Signer     // nodes seal to the first, and have sealed to others
	parts   []format.UKISection // of Image, but for its release
	stub    []byte
	name    string // of the release, for people
}

// Fetch fetches the parts of a loader and puts them together. The same layer, bootstrap and
// arguments make the same bytes. Its number is the layer's date.
func Fetch(ctx context.Context, r *registry.Registry, s Source) (*Loader, error) {
	s.Bootstrap.SetNeeds()
	u := s.Layer.UEFI
	if u == nil {
		return nil, cli.WithHint(fmt.Errorf("layer %s has no programs for UEFI", s.Layer.Digest),
			"add systemd-boot-efi to conf.apt.packages, and build")
	}
	if err := s.Layer.Boots(&s.Bootstrap); err != nil {
		return nil, fmt.Errorf("layer %s: %w", s.Layer.Digest, err)
	}
	made, err := time.Parse(time.RFC3339, s.Layer.Created)
	if err != nil {
		return nil, fmt.Errorf("date of layer %s: %w", s.Layer.Digest, err)
	}
	l := &Loader{sign: builder.Programs(s.Key), Arch: s.Layer.Arch, Date: made.UTC(),
		name: fmt.Sprintf("caisson, fleet %s, kernel %s", s.Bootstrap.Fleet, s.Layer.Kernel.Release)}
	if s.Key != nil {
		key, err := s.Key.Open()
		if err != nil {
			return nil, err
		}
		l.approve = append([]crypto.Signer{key}, s.Former...)
	}
	var kernel, initrd []byte
	for _, part := range []struct {
		name string
		blob spec.Blob
		to   *[]byte
	}{{"stub", u.Stub, &l.stub}, {"systemd-boot", u.Manager, &l.Manager}, {"kernel", s.Layer.Kernel.Blob, &kernel},
		{"initrd", s.Layer.Initrd, &initrd}} {
		if *part.to, err = fetch(ctx, r, part.blob); err != nil {
			return nil, fmt.Errorf("%s of layer %s: %w", part.name, s.Layer.Digest, err)
		}
	}
	if l.Manager, err = l.sign(l.Manager); err != nil {
		return nil, fmt.Errorf("systemd-boot of layer %s: %w", s.Layer.Digest, err)
	}
	site, err := boot.SiteCPIO(s.Bootstrap)
	if err != nil {
		return nil, err
	}
	initrd = append(initrd, make([]byte, (4-len(initrd)%4)%4)...) // the kernel looks for an archive there
	l.parts = []format.UKISection{{Name: ".cmdline", Data: []byte(s.line())}, {Name: ".initrd", Data: append(initrd, site...)},
		{Name: format.Kernel, Data: kernel}}
	return l, l.SetNumber(made.Unix())
}

// SetNumber makes the image again, with another number.
func (l *Loader) SetNumber(number int64) error {
	image, err := l.write(append([]format.UKISection{{Name: ".osrel", Data: []byte(l.release(number))}}, l.parts...))
	if err != nil {
		return err
	}
	signed, err := l.sign(image)
	if err != nil {
		return fmt.Errorf("loader: %w", err)
	}
	l.Number, l.Image = number, signed
	return nil
}

// Follow gives a loader the number that comes after the published one of its architecture, and
// after that of media of its layer, which may have another site.cpio. It returns the published
// one where both are the same.
func (l *Loader) Follow(published []spec.Loader) (*spec.Loader, error) {
	next := l.Number + 1
	if at := slices.IndexFunc(published, func(o spec.Loader) bool { return o.Arch == l.Arch }); at >= 0 {
		before := published[at]
		if err := l.SetNumber(before.Number); err != nil {
			return nil, err
		}
		if digest.Of(l.Image) == before.Image.Digest {
			return &before, nil
		}
		next = max(next, before.Number+1)
	}
	return nil, l.SetNumber(next)
}

// write makes the image of sections, with what is signed for TPMs.
func (l *Loader) write(sections []format.UKISection) ([]byte, error) {
	made := func() ([]byte, error) {
		var image bytes.Buffer
		err := format.WriteUKI(&image, l.stub, sections)
		return image.Bytes(), err
	}
	if len(l.approve) == 0 {
		return made()
	}
	public, err := x509.MarshalPKIXPublicKey(l.approve[0].Public())
	if err != nil {
		return nil, err
	}
	sections = slices.Insert(sections, 0, format.UKISection{Name: spec.ApprovalKeySection,
		Data: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})})
	image, err := made()
	if err != nil {
		return nil, err
	}
	_, register, err := format.MeasureUKI(image)
	if err != nil { // what nobody can compute nobody can sign, see Register
		sections = sections[1:]
		return made()
	}
	policy := spec.RegisterPolicy(format.Register, register)
	sum := sha256.Sum256(policy[:])
	var all spec.Approvals
	for _, key := range l.approve {
		if public, err = x509.MarshalPKIXPublicKey(key.Public()); err != nil {
			return nil, err
		}
		id := sha256.Sum256(public)
		a := spec.Approval{Registers: []uint{format.Register}, Key: hex.EncodeToString(id[:]), Policy: hex.EncodeToString(policy[:])}
		if a.Signature, err = key.Sign(rand.Reader, sum[:], crypto.SHA256); err != nil {
			return nil, fmt.Errorf("sign what the loader leaves in a TPM: %w", err)
		}
		all.SHA256 = append(all.SHA256, a)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	sections = slices.Insert(sections, 0, format.UKISection{Name: spec.ApprovalsSection, Data: text})
	return made()
}

// largest is more than the kernel or the initrd of any layer has: they are held in memory.
const largest = 1 << 30

func fetch(ctx context.Context, r *registry.Registry, b spec.Blob) ([]byte, error) {
	if b.Size < 0 || b.Size > largest {
		return nil, fmt.Errorf("%d bytes are not those of a loader", b.Size)
	}
	body, _, err := r.Blob(ctx, oci.RepoLayer, b.Digest)
	if err != nil {
		return nil, err
	}
	defer body.Close() // only read
	data, err := io.ReadAll(io.LimitReader(body, b.Size))
	if err == nil && (int64(len(data)) != b.Size || digest.Of(data) != b.Digest) {
		err = fmt.Errorf("it is %s with %d bytes, not %s with %d", digest.Of(data), len(data), b.Digest, b.Size)
	}
	return data, err
}

// release returns what boot managers show of the loader, and order it by; see os-release(5).
func (l *Loader) release(number int64) string {
	return fmt.Sprintf("ID=caisson\nIMAGE_ID=caisson\nIMAGE_VERSION=%d\nPRETTY_NAME=\"%s\"\n", number, l.name)
}

// line is the kernel's command line.
func (s Source) line() string {
	args := append(append([]string{}, s.Bootstrap.KernelArgs...), s.Args...)
	if s.Node != "" {
		args = append(args, "caisson.node="+s.Node)
	}
	return strings.Join(spec.KernelLine(args), " ")
}

// Register returns what the loader leaves in register 11 of a TPM, hexadecimal; "" where it is not known
// what its stub measures.
func (l *Loader) Register() string {
	_, register, err := format.MeasureUKI(l.Image)
	if err != nil {
		return ""
	}
	return hex.EncodeToString(register[:])
}

// Measure returns what the file of a loader leaves in a TPM: the content of register 11, and the digests
// by which firmware measures it and its kernel into register 4.
func Measure(image []byte) (stub [32]byte, programs [][32]byte, err error) {
	_, stub, err = format.MeasureUKI(image)
	if err != nil {
		return stub, nil, err
	}
	kernel, err := format.KernelOf(image)
	if err != nil {
		return stub, nil, err
	}
	for _, program := range [][]byte{image, kernel} {
		sum, err := cms.ImageDigest(program)
		if err != nil {
			return stub, nil, fmt.Errorf("what firmware measures of the loader: %w", err)
		}
		programs = append(programs, [32]byte(sum))
	}
	return stub, programs, nil
}

// title is the name of the loader's file, by which it stands beside others.
func (l *Loader) title() string { return fmt.Sprintf("caisson-%d-%s.efi", l.Number, l.id()) }

// id returns what tells the loader's bytes from those of others, for names of files.
func (l *Loader) id() string { return digest.Hex(digest.Of(l.Image))[:12] }

// Push brings a loader into a registry as disks take it: the program, and a file system with
// it and a boot manager that a node copies into a partition of [espRoom] bytes. It returns
// what names both.
func (l *Loader) Push(ctx context.Context, r *registry.Registry) (spec.Loader, error) {
	esp, size, err := l.esp()
	if err != nil {
		return spec.Loader{}, err
	}
	defer os.Remove(esp.Name()) // the registry has it, or not
	defer esp.Close()           // only read
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(esp, 0, size)); err != nil {
		return spec.Loader{}, err
	}
	pushed := spec.Loader{Arch: l.Arch, Number: l.Number, Image: spec.Blob{Digest: digest.Of(l.Image),
		Size: int64(len(l.Image))}, ESP: spec.Blob{Digest: digest.From(sum), Size: size}}
	m := oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLoader,
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare()}
	for _, part := range []struct {
		kind, title string
		blob        spec.Blob
		open        registry.Opener
	}{
		{oci.TypeUKI, l.title(), pushed.Image, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l.Image)), nil }},
		{oci.TypeESP, "esp", pushed.ESP, func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(esp, 0, size)), nil }},
	} {
		d := oci.Descriptor{MediaType: part.kind, Digest: part.blob.Digest, Size: part.blob.Size,
			Annotations: map[string]string{"org.opencontainers.image.title": part.title}}
		if err := r.PutBlob(ctx, oci.RepoLoader, d, part.open); err != nil {
			return pushed, fmt.Errorf("push the loader's %s: %w", part.title, err)
		}
		m.Layers = append(m.Layers, d)
	}
	if err := r.PutData(ctx, oci.RepoLoader, oci.Describe(oci.MediaTypeEmpty, oci.Empty)); err != nil {
		return pushed, fmt.Errorf("push the loader: %w", err)
	}
	raw := oci.Encode(m)
	if pushed.Manifest, err = r.PutManifest(ctx, oci.RepoLoader, oci.MediaTypeManifest, raw, release.KeepTag(oci.Digest(raw))); err != nil {
		return pushed, fmt.Errorf("push the loader: %w", err)
	}
	return pushed, nil
}

// esp writes the file system of a partition that a loader starts from into a temporary file,
// and returns how many bytes at its beginning are in use.
func (l *Loader) esp() (f *os.File, size int64, err error) {
	v := l.volume(uuid.MustParse(paths.ImageDisk), espRoom, l.chosen())
	if size, err = v.Used(); err != nil {
		return nil, 0, err
	}
	if f, err = os.CreateTemp("", "caisson-esp-"); err != nil {
		return nil, 0, err
	}
	if err := errors.Join(v.Write(f), f.Truncate(size)); err != nil {
		_ = f.Close()           // err says what failed
		_ = os.Remove(f.Name()) // likewise
		return nil, 0, fmt.Errorf("EFI system partition: %w", err)
	}
	return f, size, nil
}

// secret is how names of arguments look whose values are not for everybody.
var secret = regexp.MustCompile(`(?i)(passw|passphrase|secret|token|credential|api[._-]?key)`)

// Credentials lists what looks like one in a bootstrap and in the arguments of a loader's
// kernel, without its value: its holder can read it.
func Credentials(b spec.Bootstrap, args []string) (found []string) {
	for _, arg := range append(append([]string{}, b.KernelArgs...), args...) {
		if name, value, ok := strings.Cut(arg, "="); ok && value != "" && (secret.MatchString(name) || hasUser(value)) {
			found = append(found, "kernel argument "+name)
		}
	}
	for _, place := range []struct{ name, url string }{{"the proxy", b.Proxy}, {"the URL of reports", b.Hints}} {
		if hasUser(place.url) {
			found = append(found, "a password in "+place.name)
		}
	}
	return found
}

// hasUser reports whether a text is a URL with a user.
func hasUser(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.User != nil
}
