// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// World is everything a node meets, forged.
type World struct {
	Row
	Overlay        []byte
	Bundles        [][]byte
	Manifest       []byte // of the overlay
	OverlayDigest  string // of Overlay as served
	Fleet          []byte
	FleetBundles   [][]byte
	FleetManifest  []byte
	LayerManifest  []byte // as served under LayerDigest
	LayerDigest    string
	Config         []byte // as served under ConfigDigest
	ConfigDigest   string
	Image          []byte // as served under ImageDigest
	ImageDigest    string
	ImageSize      int
	manifestDigest string
}

// The texts of the good world. {…} is filled in from below to above.
const (
	goodImage  = "squashfs of a base system, and then some: 0123456789 0123456789 0123456789 0123456789"
	goodConfig = `{"apiVersion":"caisson.dev/v1alpha1","kind":"Layer","fleet":"metal-a","version":"1","variant":"default","recipe":"","arch":"amd64","created":"2026-11-01T00:00:00Z",` +
		`"images":[{"name":"base","mediaType":"application/vnd.caisson.image.v1.squashfs","digest":"{image}","size":{imageSize}}],` +
		`"kernel":{"release":"","digest":"","size":0},"initrd":{"digest":"","size":0}}`
	goodLayer = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"application/vnd.caisson.layer.v1+json",` +
		`"config":{"mediaType":"application/vnd.caisson.layer.config.v1+json","digest":"{config}","size":{configSize}},` +
		`"layers":[{"mediaType":"application/vnd.caisson.image.v1.squashfs","digest":"{image}","size":{imageSize}}]}`
	goodOverlay = `{"apiVersion":"caisson.dev/v1alpha1","kind":"Overlay","fleet":"metal-a","node":"superhost","match":{"macs":["52:54:00:12:34:56"]},` +
		`"layer":"{layer}","persist":["/var/log"],"items":{"mounts":[{"id":"data","device":"/dev/vdb","target":"/srv/data","type":"ext4"}],` +
		`"sysctl":[{"key":"vm/swappiness","value":"10"}],"exec":[{"name":"010-hello.sh","data":"#!/bin/sh\n"}]}}`
	goodStatement = `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":"{overlay}"}}],"predicateType":"https://caisson.dev/overlay/v1",` +
		`"predicate":{"fleet":"metal-a","node":"superhost","match":{"macs":["52:54:00:12:34:56"]},"layer":"{layer}","epoch":1,"generation":7,` +
		`"issuedAt":"2026-11-01T00:00:00Z","expires":"2026-12-01T00:00:00Z"}}`
	goodGrant = `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":"{grant}"}}],"predicateType":"https://caisson.dev/epoch/v1",` +
		`"predicate":{"fleet":"metal-a","epoch":1}}`
	goodFleet          = `{"apiVersion":"caisson.dev/v1alpha1","kind":"Fleet","fleet":"metal-a","minimum":{"epoch":1,"generation":4}}`
	goodFleetStatement = `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":"{fleet}"}}],"predicateType":"https://caisson.dev/fleet/v1",` +
		`"predicate":{"fleet":"metal-a","issuedAt":"2026-11-09T00:00:00Z","expires":"2026-11-12T00:00:00Z"}}`
	goodBundle = `{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"publicKey":{"hint":"{hint}"}},` +
		`"dsseEnvelope":{"payload":"{payload}","payloadType":"application/vnd.in-toto+json","signatures":[{"sig":"{sig}"}]}}`
)

// Forge makes the world of a row.
func (r Row) Forge(t testing.TB) *World {
	t.Helper()
	w := &World{Row: r}
	used := map[string]bool{}
	// make fills a good text in, lets the author edit it, and the enemy after its
	// digest was taken by those above.
	make := func(name, text string, fill ...string) (digest string, authored, served []byte) {
		a := strings.NewReplacer(fill...).Replace(edit(t, r.Author[name], text))
		used["author "+name], used["served "+name] = true, true
		return digestOf([]byte(a)), []byte(a), []byte(edit(t, r.Served[name], a))
	}
	var image, config, layer []byte
	w.ImageDigest, image, w.Image = make("image", goodImage)
	w.ImageSize = len(image)
	imageSize := strconv.Itoa(len(image))
	w.ConfigDigest, config, w.Config = make("config", goodConfig, "{image}", w.ImageDigest, "{imageSize}", imageSize)
	w.LayerDigest, layer, w.LayerManifest = make("layer", goodLayer, "{image}", w.ImageDigest, "{imageSize}", imageSize, "{config}", w.ConfigDigest, "{configSize}", strconv.Itoa(len(config)))
	_ = layer
	overlayDigest, overlay, served := make("overlay", goodOverlay, "{layer}", w.LayerDigest)
	_ = overlay
	w.Overlay, w.OverlayDigest = served, digestOf(served)

	_, statement, _ := make("statement", goodStatement, "{overlay}", hexOf(overlayDigest), "{layer}", w.LayerDigest)
	for _, junk := range r.Before {
		w.Bundles = append(w.Bundles, w.junk(t, junk, statement)...)
	}
	for _, who := range r.Sign {
		w.Bundles = append(w.Bundles, w.bundle(t, "", who, statement))
	}
	if r.Grant != "none" {
		_, grant, _ := make("grant", goodGrant, "{grant}", hexOf(digestOf([]byte("metal-a 1\n"))))
		w.Bundles = append(w.Bundles, w.bundle(t, "grant", r.Grant, grant))
	}
	fleetDigest, _, fleet := make("fleet", goodFleet, "{layer}", w.LayerDigest, "{overlay}", overlayDigest)
	w.Fleet = fleet
	_, fleetStatement, _ := make("fleetStatement", goodFleetStatement, "{fleet}", hexOf(fleetDigest))
	for _, who := range []string{"operator", "second"} {
		w.FleetBundles = append(w.FleetBundles, w.bundle(t, "fleet", who, fleetStatement))
	}

	if r.FleetGrant != "none" {
		epoch := epochOf.FindStringSubmatch(string(w.Fleet))
		if epoch == nil {
			epoch = []string{"", "1"}
		}
		grant := strings.NewReplacer("{grant}", hexOf(digestOf([]byte("metal-a "+epoch[1]+"\n"))), `"epoch":1`, `"epoch":`+epoch[1]).Replace(goodGrant)
		w.FleetBundles = append(w.FleetBundles, w.bundle(t, "grant", r.FleetGrant, []byte(grant)))
	}

	w.Manifest = []byte(edit(t, r.Served["manifest"], document("application/vnd.caisson.overlay.v1+json", w.Overlay, w.Bundles, r.Bare)))
	w.FleetManifest = []byte(edit(t, r.Served["fleetManifest"], document("application/vnd.caisson.fleet.v1+json", w.Fleet, w.FleetBundles, false)))
	w.manifestDigest = digestOf(w.Manifest)
	for _, edits := range []map[string][]Edit{r.Author, r.Served} {
		for name := range edits {
			if !used["author "+name] && !map[string]bool{"manifest": true, "fleetManifest": true, "payload": true, "bundle": true, "fleetBundle": true}[name] {
				t.Fatalf("row %q edits %q, which is nothing", r.Name, name)
			}
		}
	}
	return w
}

// bundle signs a statement. "A as B" signs with A's key and names B's. Edits of
// payload and bundle are for the overlay's bundles only.
func (w *World) bundle(t testing.TB, what, who string, statement []byte) []byte {
	t.Helper()
	signer, named, found := strings.Cut(who, " as ")
	if !found {
		named = signer
	}
	text, payload := goodBundle, string(statement)
	kind := "application/vnd.in-toto+json"
	if what == "" {
		text = edit(t, w.Author["bundle"], text)
		if m := regexp.MustCompile(`"payloadType":"([^"]*)"`).FindStringSubmatch(text); m != nil {
			kind = m[1]
		}
	}
	sig := signature(signer, fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload))
	if what == "" {
		payload = edit(t, w.Served["payload"], payload)
	}
	out := strings.NewReplacer("{hint}", hint(named), "{payload}", b64([]byte(payload)), "{sig}", b64(sig)).Replace(text)
	switch what {
	case "":
		out = edit(t, w.Served["bundle"], out)
	case "fleet":
		out = edit(t, w.Served["fleetBundle"], out)
	}
	return []byte(out)
}

// junk is a bundle, or many, that proves nothing.
func (w *World) junk(t testing.TB, kind string, statement []byte) [][]byte {
	count := 1
	if n, rest, ok := strings.Cut(kind, " "); ok {
		if c, err := strconv.Atoi(n); err == nil {
			count, kind = c, rest
		}
	}
	var one []byte
	plain := &World{Row: Row{}}
	switch kind {
	case "garbage":
		one = []byte("not JSON")
	case "huge":
		one = []byte(strings.Repeat("x", 40<<10))
	case "stranger":
		one = plain.bundle(t, "", "stranger", statement)
	case "copy":
		one = plain.bundle(t, "", "operator", statement)
	case "attestation":
		one = plain.bundle(t, "", "operator", []byte(strings.Replace(string(statement), "https://caisson.dev/overlay/v1", "https://slsa.dev/provenance/v1", 1)))
	default:
		t.Fatalf("no junk %q", kind)
	}
	var out [][]byte
	for range count {
		out = append(out, one)
	}
	return out
}

// document is the manifest of a signed document.
func document(kind string, doc []byte, bundles [][]byte, bare bool) string {
	layer := func(mediaType string, data []byte) string {
		inline := `,"data":"` + b64(data) + `"`
		if bare {
			inline = ""
		}
		return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d%s}`, mediaType, digestOf(data), len(data), inline)
	}
	parts := []string{layer(kind, doc)}
	for _, b := range bundles {
		parts = append(parts, layer("application/vnd.dev.sigstore.bundle.v0.3+json", b))
	}
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":%q,"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":%q,"size":2,"data":"e30="},"layers":[%s]}`,
		kind, digestOf([]byte("{}")), strings.Join(parts, ","))
}

var epochOf = regexp.MustCompile(`"epoch":([0-9]+)`)

var pad = regexp.MustCompile(`\{pad:([0-9]+)\}`)

func edit(t testing.TB, edits []Edit, text string) string {
	t.Helper()
	for _, e := range edits {
		if !strings.Contains(text, e.Old) {
			t.Fatalf("%q is not in %.300s", e.Old, text)
		}
		grown := pad.ReplaceAllStringFunc(e.New, func(s string) string {
			n, _ := strconv.Atoi(pad.FindStringSubmatch(s)[1]) // digits
			return strings.Repeat("x", n)
		})
		text = strings.Replace(text, e.Old, strings.Repeat(grown, max(1, e.Times)), 1)
	}
	return text
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

func b64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
