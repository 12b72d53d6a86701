//go:build !race

package memkafka_test

// raceDetector tells that everything takes several times as long.
const raceDetector = false
