// SPDX-License-Identifier: Apache-2.0

// Command attest says what the files of a release are and what they were made of. Beside
// them it writes an SPDX document of the modules that the programs are linked of, an in-toto
// statement with SLSA provenance, and SHA256SUMS, and signs that where a key is given: as
// cosign sign-blob and openssl dgst do, by ECDSA over SHA-256, the same each time.
//
// packaging/hack/release runs it. What it says of the programs is what their linker wrote into them.
package main

import (
	"crypto"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/sbom"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
)

// sumsFile is the list of what a release is.
const sumsFile = "SHA256SUMS"

func main() {
	version := flag.String("version", "", "the release, such as v0.9.0")
	built := flag.String("built", "", "when its commit was made, as RFC 3339 has it")
	key := flag.String("key", "", "private key that signs; unsigned when empty")
	dirty := flag.Bool("dirty", false, "take programs of uncommitted changes")
	untagged := flag.Bool("untagged", false, "no tag of the commit is the version; the provenance says so")
	flag.Parse()
	r := sbom.Release{Version: *version, Untagged: *untagged}
	if err := attest(flag.Arg(0), r, *built, *key, *dirty); err != nil {
		fmt.Fprintln(os.Stderr, "attest:", err)
		os.Exit(1)
	}
}

func attest(dir string, release sbom.Release, built, key string, dirty bool) error {
	at, err := time.Parse(time.RFC3339, built)
	if err != nil {
		return err
	}
	files, programs, err := read(dir)
	if err != nil {
		return err
	}
	if err := ofCommit(programs, dirty); err != nil {
		return err
	}
	name := "caisson_" + strings.TrimPrefix(release.Version, "v")
	spdx, err := sbom.SPDXOfPrograms(release.Version, at.UTC().Format(time.RFC3339), programs)
	if err != nil {
		return err
	}
	if files[name+".spdx.json"], err = write(dir, name+".spdx.json", spdx); err != nil {
		return err
	}
	provenance, err := sbom.ProvenanceOfRelease(release, files, programs)
	if err != nil {
		return err
	}
	if files[name+".provenance.json"], err = write(dir, name+".provenance.json", provenance); err != nil {
		return err
	}
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&sums, "%s  %s\n", files[name], name)
	}
	if _, err := write(dir, sumsFile, []byte(sums.String())); err != nil {
		return err
	}
	fmt.Printf("%d files in %s\n", len(files), dir)
	if key == "" {
		fmt.Println("not signed: name a key with KEY=release.key")
		return nil
	}
	return signed(dir, sums.String(), key)
}

// ofCommit returns an error that names a program which git, asked by the linker, did not find
// to be made of a commit and nothing else.
func ofCommit(programs []sbom.Program, dirty bool) error {
	for _, p := range programs {
		if modified := p.Setting("vcs.modified"); modified != "false" && !dirty {
			return fmt.Errorf("%s is not made of a commit alone: its vcs.modified is %q; DIRTY=1 makes a release to look at", p.File, modified)
		}
	}
	return nil
}

// read returns the digests of the files in dir, and the programs among them.
func read(dir string) (files map[string]string, programs []sbom.Program, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	files = map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, nil, err
		}
		files[e.Name()] = hexSum(data)
		if info, err := buildinfo.ReadFile(filepath.Join(dir, e.Name())); err == nil {
			programs = append(programs, sbom.Program{File: e.Name(), SHA256: files[e.Name()], Info: info})
		}
	}
	if len(programs) == 0 {
		return nil, nil, errors.New(dir + " has no program: its SBOM would be empty")
	}
	return files, programs, nil
}

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func write(dir, name string, data []byte) (sum string, err error) {
	return hexSum(data), os.WriteFile(filepath.Join(dir, name), data, 0o644)
}

// signed signs the sums and says how that is checked.
func signed(dir, sums, name string) error {
	key, err := keys.Signer(name, new(keys.Passphrase))
	if err != nil {
		return err
	}
	public, err := sign.NewVerifier(key.Public())
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(sums))
	signature, err := key.Sign(nil, digest[:], crypto.SHA256) // of a file without a random number: RFC 6979
	if err != nil {
		return err
	}
	if _, err := write(dir, sumsFile+".sig", []byte(base64.StdEncoding.EncodeToString(signature)+"\n")); err != nil {
		return err
	}
	fmt.Printf(`signed by %s; who has release.pub checks it so:
  base64 -d SHA256SUMS.sig >sig && openssl dgst -sha256 -verify release.pub -signature sig SHA256SUMS && sha256sum -c SHA256SUMS
  cosign verify-blob --key release.pub --signature SHA256SUMS.sig --insecure-ignore-tlog SHA256SUMS
`, public.ID())
	return nil
}
