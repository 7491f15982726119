// What TensorFlow Serving does with a SavedModel, without Python: LoadSavedModel, Session::Run.
//
//     host FOLDER SIGNATURE [LIBRARY]
//
// Inputs come by stdin, one a line: name, type, rank, dimensions, values, all apart by spaces.
// Outputs go to stdout in the same form. LIBRARY is a library of ops to load before. Where
// TensorFlow says no, its message goes to stderr, and the status is 1.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/c/c_api.h"
#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session_options.h"

namespace {

using tensorflow::Tensor;

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status.ToString() << std::endl;
  std::exit(1);
}

void LoadOps(const char* library) {
  TF_Status* status = TF_NewStatus();
  TF_LoadLibrary(library, status);
  if (TF_GetCode(status) != TF_OK) {
    std::cerr << TF_Message(status) << std::endl;
    std::exit(1);
  }
  TF_DeleteStatus(status);
}

// Words, because `>>` into a float does not read "nan" and "inf".
void Parse(const std::string& word, float* value) {
  *value = std::strtof(word.c_str(), nullptr);
}
void Parse(const std::string& word, int32_t* value) { *value = std::stoi(word); }
void Parse(const std::string& word, int64_t* value) { *value = std::stoll(word); }
void Parse(const std::string& word, tensorflow::tstring* value) { *value = word; }

template <typename T>
Tensor Read(const tensorflow::TensorShape& shape) {
  Tensor result(tensorflow::DataTypeToEnum<T>::value, shape);
  auto values = result.flat<T>();
  std::string word;
  for (int64_t i = 0; i < values.size() && std::cin >> word; ++i) Parse(word, &values(i));
  return result;
}

Tensor ReadTensor(const std::string& type) {
  int rank = 0;
  std::cin >> rank;
  tensorflow::TensorShape shape;
  for (int i = 0; i < rank; ++i) {
    int64_t size = 0;
    std::cin >> size;
    Require(shape.AddDimWithStatus(size));
  }
  if (type == "float32") return Read<float>(shape);
  if (type == "int32") return Read<int32_t>(shape);
  if (type == "int64") return Read<int64_t>(shape);
  if (type == "string") return Read<tensorflow::tstring>(shape);
  Require(absl::InvalidArgumentError("The type of an input is " + type));
  return Tensor();
}

template <typename T>
void WriteValues(const Tensor& tensor) {
  auto values = tensor.flat<T>();
  for (int64_t i = 0; i < values.size(); ++i) std::cout << " " << values(i);
}

void WriteTensor(const std::string& name, const Tensor& tensor) {
  const bool is_float = tensor.dtype() == tensorflow::DT_FLOAT;
  std::cout << name << (is_float ? " float32 " : " int64 ") << tensor.dims();
  for (int i = 0; i < tensor.dims(); ++i) std::cout << " " << tensor.dim_size(i);
  if (is_float) {
    WriteValues<float>(tensor);
  } else {
    WriteValues<int64_t>(tensor);
  }
  std::cout << "\n";
}

int Run(const std::string& folder, const std::string& signature_name) {
  tensorflow::SavedModelBundle bundle;
  // The tag and the names of signatures are literals: their headers are not in the wheel.
  Require(LoadSavedModel(tensorflow::SessionOptions(), tensorflow::RunOptions(), folder,
                         {"serve"}, &bundle));
  const auto& signatures = bundle.meta_graph_def.signature_def();
  const auto found = signatures.find(signature_name);
  if (found == signatures.end()) Require(absl::NotFoundError("no signature " + signature_name));

  std::vector<std::pair<std::string, Tensor>> inputs;
  std::string name, type;
  while (std::cin >> name >> type) {
    const auto input = found->second.inputs().find(name);
    if (input == found->second.inputs().end()) Require(absl::NotFoundError("no input " + name));
    inputs.emplace_back(input->second.name(), ReadTensor(type));
  }
  std::vector<std::string> names, nodes;
  for (const auto& output : std::map<std::string, tensorflow::TensorInfo>(
           found->second.outputs().begin(), found->second.outputs().end())) {
    names.push_back(output.first);
    nodes.push_back(output.second.name());
  }
  std::vector<Tensor> outputs;
  Require(bundle.session->Run(inputs, nodes, {}, &outputs));
  std::cout.precision(std::numeric_limits<float>::max_digits10);
  for (size_t i = 0; i < outputs.size(); ++i) WriteTensor(names[i], outputs[i]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "host FOLDER SIGNATURE [LIBRARY]" << std::endl;
    return 2;
  }
  if (argc > 3) LoadOps(argv[3]);
  return Run(argv[1], argv[2]);
}
